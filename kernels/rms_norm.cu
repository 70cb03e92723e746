// RMSNorm: divide each row by its root mean square, then scale each channel by a weight.
//
//     r = 1 / sqrt(mean(x^2) + eps)          y = x r weight          x is (rows, width), r (rows)
//
// and, for a gradient dy of y,
//
//     dx = r (dy weight - x r^2 mean(dy weight x))          dweight = sum over the rows of dy x r
//
// Next to no arithmetic is done for each number read, so a norm costs what its memory traffic
// costs. The steps of the ladder are about who reads what:
//
//     row per thread     neighbouring threads read numbers that lie a whole row apart
//     row per block      they read neighbouring numbers: a warp's 32 loads become one
//     row per warp       no barrier is left, and each thread loads 16 bytes at a time
//
// The sum for dweight runs down the columns, over all rows and so over all blocks. Adding to one
// place with atomics would add in another order in each run, and floating-point sums depend on the
// order. So each block writes the sum of its own rows, and a second kernel adds those:
//
//     rows  |....|....|....|   partial[0], partial[1], partial[2]   ->   dweight
//
// Real systems: NVIDIA Apex, Transformer Engine and Liger kernels keep the row in registers between
// the sum and the scaling, and sum dweight in the same two stages.

#include "minidist.cuh"

// Step 1: a thread does a row, exactly as the formula says.

extern "C" __global__ void rms_norm_row_per_thread(const float* x, const float* weight, float* y,
                                                   float* r, float eps, int rows, int width) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    const float* x_row = x + (long long)row * width;
    float* y_row = y + (long long)row * width;
    float sum = 0.0f;
    for (int i = 0; i < width; i++) sum += x_row[i] * x_row[i];
    float scale = 1.0f / sqrtf(sum / width + eps);
    for (int i = 0; i < width; i++) y_row[i] = x_row[i] * scale * weight[i];
    r[row] = scale;
}

// Step 2: a block does a row; thread t takes the channels t, t + blockDim.x, ... Any grid will do:
// a block goes on to another row when it has finished one.

extern "C" __global__ void rms_norm_row_per_block(const float* x, const float* weight, float* y,
                                                  float* r, float eps, int rows, int width) {
    for (int row = blockIdx.x; row < rows; row += gridDim.x) {
        const float* x_row = x + (long long)row * width;
        float* y_row = y + (long long)row * width;
        float sum = 0.0f;
        for (int i = threadIdx.x; i < width; i += blockDim.x) sum += x_row[i] * x_row[i];
        float scale = 1.0f / sqrtf(block_sum(sum) / width + eps);
        for (int i = threadIdx.x; i < width; i += blockDim.x) {
            y_row[i] = x_row[i] * scale * weight[i];
        }
        if (threadIdx.x == 0) r[row] = scale;
    }
}

// Step 3: a warp does a row. Its threads exchange their sums through registers, so no warp waits
// for another; and where rows begin on a multiple of 16 bytes, one load brings four numbers.
// To be launched with blocks of whole warps.

__device__ inline void norm_fours(const float* x, const float* weight, float* y, float* r,
                                  float eps, int width) {
    int lane = threadIdx.x % 32;
    float sum = 0.0f;
    for (int i = lane * 4; i < width; i += 128) {
        float4 v = load4(x + i);
        sum += v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
    }
    float scale = 1.0f / sqrtf(warp_sum(sum) / width + eps);
    for (int i = lane * 4; i < width; i += 128) {
        float4 v = load4(x + i), w = load4(weight + i);
        store4(y + i, make_float4(v.x * scale * w.x, v.y * scale * w.y,  //
                                  v.z * scale * w.z, v.w * scale * w.w));
    }
    if (lane == 0) *r = scale;
}

__device__ inline void norm_ones(const float* x, const float* weight, float* y, float* r, float eps,
                                 int width) {
    int lane = threadIdx.x % 32;
    float sum = 0.0f;
    for (int i = lane; i < width; i += 32) sum += x[i] * x[i];
    float scale = 1.0f / sqrtf(warp_sum(sum) / width + eps);
    for (int i = lane; i < width; i += 32) y[i] = x[i] * scale * weight[i];
    if (lane == 0) *r = scale;
}

extern "C" __global__ void rms_norm_row_per_warp(const float* x, const float* weight, float* y,
                                                 float* r, float eps, int rows, int width) {
    int warps = gridDim.x * (blockDim.x / 32);
    bool fours = width % 4 == 0 && aligned(x, 4) && aligned(weight, 4) && aligned(y, 4);
    for (int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32; row < rows; row += warps) {
        long long at = (long long)row * width;
        if (fours) norm_fours(x + at, weight, y + at, r + row, eps, width);
        else norm_ones(x + at, weight, y + at, r + row, eps, width);
    }
}

// Backward, the rows: dx, a block does a row as in step 2.

extern "C" __global__ void rms_norm_backward_dx(const float* dy, const float* x,
                                                const float* weight, const float* r, float* dx,
                                                int rows, int width) {
    for (int row = blockIdx.x; row < rows; row += gridDim.x) {
        long long at = (long long)row * width;
        float sum = 0.0f, scale = r[row];
        for (int i = threadIdx.x; i < width; i += blockDim.x) {
            sum += dy[at + i] * x[at + i] * weight[i];
        }
        float along = block_sum(sum) / width * scale * scale;
        for (int i = threadIdx.x; i < width; i += blockDim.x) {
            dx[at + i] = (dy[at + i] * weight[i] - x[at + i] * along) * scale;
        }
    }
}

// Backward, the columns, first stage: block (i, j) sums the rows of part j in the channels of its
// threads. Neighbouring threads read neighbouring channels, and each adds its rows from the top.

extern "C" __global__ void rms_norm_backward_partial(const float* dy, const float* x,
                                                     const float* r, float* partial, int rows,
                                                     int width) {
    int channel = blockIdx.x * blockDim.x + threadIdx.x;
    if (channel >= width) return;
    int part = blockIdx.y, parts = gridDim.y, step = (rows + parts - 1) / parts;
    float sum = 0.0f;
    for (int row = part * step; row < rows && row < (part + 1) * step; row++) {
        long long at = (long long)row * width + channel;
        sum += dy[at] * x[at] * r[row];
    }
    partial[(long long)part * width + channel] = sum;
}

// Backward, the columns, second stage: a thread adds the parts of a channel, in their order.

extern "C" __global__ void rms_norm_backward_dweight(const float* partial, float* dweight,
                                                     int parts, int width) {
    int channel = blockIdx.x * blockDim.x + threadIdx.x;
    if (channel >= width) return;
    float sum = 0.0f;
    for (int part = 0; part < parts; part++) sum += partial[(long long)part * width + channel];
    dweight[channel] = sum;
}

// Softmax and cross-entropy, and their gradient with respect to the logits.
//
//     loss of a row with label y >= 0:   log(sum_v exp(logits_v)) - logits_y          0 if y < 0
//     p_v = exp(logits_v) / sum_v exp(logits_v)
//     gradient of scale * (sum of the losses):   scale (p_v - [v = y]),  and 0 in rows with y < 0
//
// exp overflows above 88, so the largest logit of the row is taken off first; that changes neither
// p nor the loss. Textbooks therefore read the row three times: for the largest, for the sum, for
// p. One reading is enough for the first two ("online softmax", Milakov and Gimelshein, arXiv
// 1805.02867): whenever a larger logit turns up, what has been summed so far is scaled down,
//
//     sum = sum * exp(old largest - new largest) + 1
//
// The steps of the ladder:
//
//     row per thread      the formula; neighbouring threads read numbers a whole row apart
//     three readings      a block does a row, and loads are of neighbouring numbers
//     online              two readings instead of three
//     without p           only lse = log(sum exp) of a row is kept. The gradient is computed from
//                         the logits again, and may overwrite them: p, as large as the logits
//                         (with 128,000 words the largest array of a training step), is gone
//
// Real systems: Liger kernels overwrite the logits with their gradient; "Cut your losses" (arXiv
// 2411.09009) goes on and never stores the logits either.

#include "minidist.cuh"

constexpr float LOWEST = -3.402823466e38f;  // the least finite float32: inf - inf never arises

// A label beyond the vocabulary would read another row's logit, so it stops the kernel instead.
__device__ inline float logit_of(const float* logits, long long label, int vocabulary) {
    if (label >= vocabulary) __trap();
    return label < 0 ? 0.0f : logits[label];
}

// Step 1: a thread does a row.

extern "C" __global__ void cross_entropy_row_per_thread(const float* logits,
                                                        const long long* labels, float* losses,
                                                        float* p, int rows, int vocabulary) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    const float* x = logits + (long long)row * vocabulary;
    float* p_row = p + (long long)row * vocabulary;
    float largest = LOWEST, sum = 0.0f;
    for (int v = 0; v < vocabulary; v++) largest = fmaxf(largest, x[v]);
    for (int v = 0; v < vocabulary; v++) sum += expf(x[v] - largest);
    for (int v = 0; v < vocabulary; v++) p_row[v] = expf(x[v] - largest) / sum;
    float target = logit_of(x, labels[row], vocabulary);
    losses[row] = labels[row] < 0 ? 0.0f : logf(sum) - (target - largest);
}

// Step 2: a block does a row, in three readings.

extern "C" __global__ void cross_entropy_three_readings(const float* logits,
                                                        const long long* labels, float* losses,
                                                        float* p, int rows, int vocabulary) {
    for (int row = blockIdx.x; row < rows; row += gridDim.x) {
        const float* x = logits + (long long)row * vocabulary;
        float* p_row = p + (long long)row * vocabulary;
        float largest = LOWEST, sum = 0.0f;
        for (int v = threadIdx.x; v < vocabulary; v += blockDim.x) largest = fmaxf(largest, x[v]);
        largest = block_max(largest);
        for (int v = threadIdx.x; v < vocabulary; v += blockDim.x) sum += expf(x[v] - largest);
        sum = block_sum(sum);
        for (int v = threadIdx.x; v < vocabulary; v += blockDim.x) {
            p_row[v] = expf(x[v] - largest) / sum;
        }
        if (threadIdx.x == 0) {
            float target = logit_of(x, labels[row], vocabulary);
            losses[row] = labels[row] < 0 ? 0.0f : logf(sum) - (target - largest);
        }
    }
}

// Step 3: largest and sum in one reading. Each thread first keeps a largest and a sum of its own;
// then the sums are brought to the block's largest and added.

struct Softmax {
    float largest, sum;
};

__device__ inline Softmax block_softmax(const float* x, int vocabulary) {
    float largest = LOWEST, sum = 0.0f;
    for (int v = threadIdx.x; v < vocabulary; v += blockDim.x) {
        if (x[v] > largest) {
            sum = sum * expf(largest - x[v]) + 1.0f;
            largest = x[v];
        } else {
            sum += expf(x[v] - largest);
        }
    }
    float block_largest = block_max(largest);
    return {block_largest, block_sum(sum * expf(largest - block_largest))};
}

extern "C" __global__ void cross_entropy_online(const float* logits, const long long* labels,
                                                float* losses, float* p, int rows, int vocabulary) {
    for (int row = blockIdx.x; row < rows; row += gridDim.x) {
        const float* x = logits + (long long)row * vocabulary;
        float* p_row = p + (long long)row * vocabulary;
        Softmax all = block_softmax(x, vocabulary);
        for (int v = threadIdx.x; v < vocabulary; v += blockDim.x) {
            p_row[v] = expf(x[v] - all.largest) / all.sum;
        }
        if (threadIdx.x == 0) {
            float target = logit_of(x, labels[row], vocabulary);
            losses[row] = labels[row] < 0 ? 0.0f : logf(all.sum) - (target - all.largest);
        }
    }
}

// The loss of all rows, by one block: always the same order of additions, so always the same bits.

extern "C" __global__ void cross_entropy_total(const float* losses, float* loss, int rows) {
    float sum = 0.0f;
    for (int row = threadIdx.x; row < rows; row += blockDim.x) sum += losses[row];
    sum = block_sum(sum);
    if (threadIdx.x == 0) *loss = sum;
}

// Backward of steps 1 to 3, from p.

extern "C" __global__ void cross_entropy_backward(float scale, const float* p,
                                                  const long long* labels, float* dlogits, int rows,
                                                  int vocabulary) {
    for (int row = blockIdx.x; row < rows; row += gridDim.x) {
        long long at = (long long)row * vocabulary, label = labels[row];
        float weight = label < 0 ? 0.0f : scale;
        for (int v = threadIdx.x; v < vocabulary; v += blockDim.x) {
            dlogits[at + v] = p[at + v] * weight - (v == label ? weight : 0.0f);
        }
    }
}

// Step 4: forward and backward without p. The backward kernel may be given the logits' own array
// for dlogits: each thread reads a logit before it writes the gradient there, and reads no other.

extern "C" __global__ void cross_entropy_lse(const float* logits, const long long* labels,
                                             float* losses, float* lse, int rows, int vocabulary) {
    for (int row = blockIdx.x; row < rows; row += gridDim.x) {
        const float* x = logits + (long long)row * vocabulary;
        Softmax all = block_softmax(x, vocabulary);
        if (threadIdx.x == 0) {
            float target = logit_of(x, labels[row], vocabulary);
            losses[row] = labels[row] < 0 ? 0.0f : logf(all.sum) - (target - all.largest);
            lse[row] = all.largest + logf(all.sum);
        }
    }
}

extern "C" __global__ void cross_entropy_backward_lse(float scale, const float* logits,
                                                      const float* lse, const long long* labels,
                                                      float* dlogits, int rows, int vocabulary) {
    for (int row = blockIdx.x; row < rows; row += gridDim.x) {
        long long at = (long long)row * vocabulary, label = labels[row];
        float weight = label < 0 ? 0.0f : scale;
        for (int v = threadIdx.x; v < vocabulary; v += blockDim.x) {
            float p = expf(logits[at + v] - lse[row]);
            dlogits[at + v] = p * weight - (v == label ? weight : 0.0f);
        }
    }
}

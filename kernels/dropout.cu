// Dropout: set a share of the elements to 0 and scale the others up.
//
//     y = x * scale where the element is kept, x * 0 where not          scale = 1 / share kept
//
// Backward is the same kernel on dy: the mask is not stored but computed again. For the mask is a
// function of what it is for, not of a generator's state (minidist/ops/random.py):
//
//     word     given: bits(seed, step, name of the layer)
//     row      output(output(word, sample), position)               64 bits a row
//     four     output(row, channel / 4)                             64 bits for four channels:
//
//              | channel 4k+3 | channel 4k+2 | channel 4k+1 | channel 4k |    16 bits each
//
// A channel is dropped if its 16 bits, as an integer, are below `threshold` = 65536 rate. Integers
// only: NumPy, the emulator and a GPU agree in every bit, however the work is split.
//
// The steps of the ladder; integer work is what costs here, three outputs of two multiplications:
//
//     thread per channel     three outputs for an element; four threads compute the same one
//     thread per four        a quarter of that, and loads and stores of 16 bytes
//     block per row          row's two outputs once a row and thread, not once for each four
//
// Real systems: PyTorch's kernels use Philox with a counter that the framework carries along and
// must restore from checkpoints; Megatron-LM keeps one such state for what tensor-parallel ranks do
// alike, and another for what they do differently.

#include "minidist.cuh"

typedef unsigned long long u64;

// That output, counted from 0, of the splitmix64 generator with that seed. Overflow is meant.
__device__ inline u64 output(u64 seed, u64 number) {
    u64 word = seed + (number + 1) * 0x9E3779B97F4A7C15ull;
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9ull;
    word = (word ^ (word >> 27)) * 0x94D049BB133111EBull;
    return word ^ (word >> 31);
}

// Row number `row` of a (batch, length, channels) array.
__device__ inline u64 row_bits(u64 word, const long long* samples, const long long* positions,
                               long long row, int length) {
    return output(output(word, samples[row / length]), positions[row % length]);
}

__device__ inline float factor(u64 four, int channel, int threshold, float scale) {
    int bits = (int)(four >> (16 * (channel % 4)) & 0xFFFF);
    return bits < threshold ? 0.0f : scale;
}

// Step 1.

extern "C" __global__ void dropout_thread_per_channel(const float* x, float* y, u64 word,
                                                      const long long* samples,
                                                      const long long* positions, int threshold,
                                                      float scale, int batch, int length,
                                                      int channels) {
    long long n = (long long)batch * length * channels;
    for (long long i = first_index(); i < n; i += index_stride()) {
        int channel = (int)(i % channels);
        u64 row = row_bits(word, samples, positions, i / channels, length);
        y[i] = x[i] * factor(output(row, channel / 4), channel, threshold, scale);
    }
}

// Channels 4k to 4k+3 of a row, as far as there are that many.

__device__ inline void drop_four(const float* x, float* y, u64 row, int k, int threshold,
                                 float scale, int channels, bool together) {
    u64 four = output(row, k);
    if (together) {
        float4 v = load4(x + 4 * k);
        store4(y + 4 * k, make_float4(v.x * factor(four, 0, threshold, scale),
                                      v.y * factor(four, 1, threshold, scale),
                                      v.z * factor(four, 2, threshold, scale),
                                      v.w * factor(four, 3, threshold, scale)));
    } else {
        for (int c = 4 * k; c < channels && c < 4 * k + 4; c++) {
            y[c] = x[c] * factor(four, c, threshold, scale);
        }
    }
}

// Step 2.

extern "C" __global__ void dropout_thread_per_four(const float* x, float* y, u64 word,
                                                   const long long* samples,
                                                   const long long* positions, int threshold,
                                                   float scale, int batch, int length,
                                                   int channels) {
    int fours = (channels + 3) / 4;
    bool together = channels % 4 == 0 && aligned(x, 4) && aligned(y, 4);
    long long n = (long long)batch * length * fours;
    for (long long i = first_index(); i < n; i += index_stride()) {
        long long row = i / fours, at = row * channels;
        drop_four(x + at, y + at, row_bits(word, samples, positions, row, length), (int)(i % fours),
                  threshold, scale, channels, together);
    }
}

// Step 3.

extern "C" __global__ void dropout_block_per_row(const float* x, float* y, u64 word,
                                                 const long long* samples,
                                                 const long long* positions, int threshold,
                                                 float scale, int batch, int length, int channels) {
    bool together = channels % 4 == 0 && aligned(x, 4) && aligned(y, 4);
    for (long long row = blockIdx.x; row < (long long)batch * length; row += gridDim.x) {
        u64 bits = row_bits(word, samples, positions, row, length);
        long long at = row * channels;
        for (int k = threadIdx.x; k < (channels + 3) / 4; k += blockDim.x) {
            drop_four(x + at, y + at, bits, k, threshold, scale, channels, together);
        }
    }
}

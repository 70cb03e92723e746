// Rotary positions: turn pairs of channels by an angle that grows with the position.
//
//     channel j of the first half (a) and channel j + size/2 (b) are a pair; for position t
//
//     angle = t base^(-2j/size)         a' = a cos - b sin          b' = b cos + a sin
//
// x is (batch, length, heads, size): one head of one position lies together. A gradient is turned
// back, by minus the angle, so forward and backward are one kernel: `direction` is 1 or -1.
//
//     a head:   a a a a a a a a | b b b b b b b b
//                   j      \________/  j + size/2
//
// The steps of the ladder, with what moves for n elements:
//
//     thread per element     each element is read twice, by itself and by its partner
//     thread per pair        n read, n written; the factors come from tables, alike for all heads
//     angles on the spot     no tables: a thread works out one angle and turns that pair in all
//                            heads of all sequences. The angle must be float64: at position
//                            100,000 a float32 angle is off by 0.004. float64 is slow on most
//                            GPUs, so it is worth it only if many heads share an angle
//
// Real systems: vLLM reads a table of cosines and sines; Transformer Engine's kernel is handed the
// angles and computes cosine and sine itself.

#include "minidist.cuh"

// Steps 1 and 2 take the tables of the array version, (length, size) each:
//     cosines  cos cos ... | cos cos ...          sines  -sin -sin ... | sin sin ...

// Step 1: y = x cos + (x with its halves swapped) sin, element by element.

extern "C" __global__ void rope_thread_per_element(const float* x, const float* cosines,
                                                   const float* sines, float* y, float direction,
                                                   long long n, int length, int heads, int size) {
    for (long long i = first_index(); i < n; i += index_stride()) {
        int channel = (int)(i % size), half = size / 2;
        long long position = i / ((long long)heads * size) % length;
        long long at = position * size + channel;
        long long partner = channel < half ? i + half : i - half;
        y[i] = x[i] * cosines[at] + x[partner] * (direction * sines[at]);
    }
}

// Step 2: both elements of a pair by one thread, which may therefore write over what it has read:
// y may be x. Only the halves of the tables that are not repeated are read.

extern "C" __global__ void rope_thread_per_pair(const float* x, const float* cosines,
                                                const float* sines, float* y, float direction,
                                                long long n, int length, int heads, int size) {
    int half = size / 2;
    for (long long pair = first_index(); pair < n / 2; pair += index_stride()) {
        int j = (int)(pair % half);
        long long head = pair / half, at = head / heads % length * size + j;
        float cosine = cosines[at], sine = direction * sines[at + half];
        long long left = head * size + j, right = left + half;
        float a = x[left], b = x[right];
        y[left] = a * cosine - b * sine;
        y[right] = b * cosine + a * sine;
    }
}

// Step 3: a thread owns angle j of position t.

extern "C" __global__ void rope_from_positions(const float* x, const long long* positions, float* y,
                                               double base, float direction, int batch, int length,
                                               int heads, int size) {
    int half = size / 2;
    for (long long i = first_index(); i < (long long)length * half; i += index_stride()) {
        int t = (int)(i / half), j = (int)(i % half);
        double angle = (double)positions[t] * pow(base, (double)j * (-1.0 / half));
        float cosine = (float)cos(angle), sine = direction * (float)sin(angle);
        for (int head = 0; head < batch * heads; head++) {
            long long row = ((long long)(head / heads) * length + t) * heads + head % heads;
            float a = x[row * size + j], b = x[row * size + j + half];
            y[row * size + j] = a * cosine - b * sine;
            y[row * size + j + half] = b * cosine + a * sine;
        }
    }
}

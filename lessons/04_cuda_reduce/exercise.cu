// Lesson 04, blanks 04.1 to 04.3: three kernels. Put your lines in the place of each TODO.
//
//     ./run check 04          which blank is next, or the smallest launch that goes wrong
//
// A kernel is the program of one thread. A launch starts a grid of blocks, each with the same number
// of threads, and every thread runs it. What differs is who a thread is:
//
//     threadIdx.x     my number in my block         blockIdx.x      the number of my block
//     blockDim.x      threads of a block            gridDim.x       blocks of the grid
//
//     2 blocks of 4 threads       block 0                 block 1
//     threadIdx.x                 0   1   2   3           0   1   2   3
//     number in the grid          0   1   2   3           4   5   6   7
//
// "minidist.cuh" has two functions for that: first_index() is my number in the grid, and
// index_stride() is the number of threads in the grid.
//
// Nobody promises in which order threads run. Those of one block can wait for each other, and have
// memory of their own in common (`__shared__`); blocks of one launch cannot, and have not.
#include "minidist.cuh"
#define TODO(task)  // what is left to write; the check reads it

// 04.1, about 2 lines.  out[i] = a[i] + b[i] for all i < n, one element for each thread.
//
// The launch has n threads or more, and the last block is rarely full: 33 elements in blocks of 32
// are two blocks, and 31 threads without an element. These must touch nothing.
//
// Bytes: two floats read and one written for each element, 12 bytes for one addition.
extern "C" __global__ void add_f32(float* out, const float* a, const float* b, long long n) {
    TODO("04.1: find the one element that is mine, and add it if there is one");
}

// 04.2, about 9 lines.  out[block] = the sum of x[i] over the elements of a block's threads.
//
// Thread t of a block puts its element, or 0 if it has none, into parts[t]. Then the threads add as
// a tree: in each round the first half takes from the second half, until one is left.
//
//     6 threads   parts    0     1     2     3     4     5
//     count 6              0+3   1+4   2+5                      half = 3
//     count 3              0+3+2+5     1+4                      half = 2: thread 1 finds nobody
//     count 2              all                                  half = 1
//
// `parts` is shared memory with one float for each thread of the block, and no value at first.
// A block may have any number of threads, also an odd one.
//
// Before a thread reads what another one has written, __syncthreads() must stand between: it returns
// when all threads of the block have come to it. All of them: so it stands in no branch that only
// some of them take.
//
// Bytes: one float read for each element, one written for each block. Rounds: log2 of the threads.
extern "C" __global__ void sum_sequential(float* out, const float* x, long long n) {
    extern __shared__ float parts[];
    const unsigned t = threadIdx.x;
    const long long i = first_index();
    TODO("04.2: fill parts, add as a tree with barriers, and let one thread write the sum");
}

// 04.3, about 2 lines.  out[i] = a[i] + alpha * b[i] for all i < n, on a grid of any size.
//
// Now there may be fewer threads than elements, down to one. A thread does the elements i, i + s,
// i + 2 s, ..., where s is the number of threads in the grid (a grid-stride loop):
//
//     2 blocks of 2 threads, 9 elements      thread 0 of block 1 does elements 2 and 6
//
// Bytes: 12 for each element, as in 04.1. In two kernels, one that multiplies and one that adds, it
// would be 20: what lies between would go to memory and come back.
extern "C" __global__ void add_scaled_f32_stride(float* out, const float* a, const float* b,
                                                 float alpha, long long n) {
    TODO("04.3: begin at my number in the grid, and go on in steps of the whole grid");
}

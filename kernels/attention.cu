// Causal attention with grouped queries, forward.
//
//     score = q k / sqrt(size)        o = softmax(score) v        lse = log(sum(exp(score)))
//
//     q, o (batch, queries, groups, heads, size)     q_pos (queries)     lse like o, without size
//     k, v (batch, keys, groups, size)               k_pos (keys)
//
// A query sees the keys whose position is not larger than its own, in whatever order they are
// stored. `heads` query heads share the keys and values of their group. A query that sees nothing
// has o = 0 and lse = -inf. The backward pass needs q, k, v, o and lse only: never the scores.
//
// The steps of the ladder:
//
//     naive     a thread does a query. It reads all keys and values from memory by itself, and
//               computes each score twice: once for the largest, once for the weights
//     tiled     a block does 16 queries. 32 keys and values at a time are brought to shared memory
//               once and used by all 16; each score is computed once
//
// How can a softmax be taken of scores that come 32 at a time? By the rule of "online softmax":
// keep the largest score so far, the sum, and o as if these were all keys. When a larger score
// turns up, what has been added so far is too large by one factor, exp(new - old largest):
//
//     factor = exp(old - new)       sum = sum factor + sum(p)       o = o factor + p v
//
//               keys, 32 at a time
//             +------+------+------+          . skipped: hidden from all 16 queries
//     16      |######|######|//    |          / some pairs are hidden
//     queries |######|######|####//|..        # all visible
//             +------+------+------+
//
// The 16 queries of a block are columns of the (queries, heads) table of one group, so heads that
// share keys share the tile as well: with 16 heads in a group one query's row fills the block.
//
// Real systems: FlashAttention (arXiv 2205.14135 and 2307.08691) has this structure, with matrix
// units (tensor cores) for both products, tiles of 64 to 128, and the next tile under way while
// this one is used.

#include "minidist.cuh"

constexpr float LOWEST = -3.402823466e38f;  // the least finite float32: inf - inf never arises

__device__ inline float minus_infinity() { return __uint_as_float(0xff800000u); }

// Step 1. A thread adds up in o, so the largest score must be known before: k is read twice.

__device__ inline float dot(const float* a, const float* b, int size) {
    float sum = 0.0f;
    for (int i = 0; i < size; i++) sum += a[i] * b[i];
    return sum;
}

extern "C" __global__ void attention_naive(const float* q, const float* k, const float* v,
                                           const long long* q_pos, const long long* k_pos,
                                           float* o, float* lse, int batch, int queries, int keys,
                                           int groups, int heads, int size) {
    long long row = first_index();  // of q, o and lse: ((b queries + t) groups + g) heads + head
    if (row >= (long long)batch * queries * groups * heads) return;
    int group = (int)(row / heads % groups), t = (int)(row / heads / groups % queries);
    long long b = row / heads / groups / queries;
    long long first = (b * keys * groups + group) * size, step = (long long)groups * size;
    float scale = 1.0f / sqrtf((float)size), largest = LOWEST, sum = 0.0f;
    for (int s = 0; s < keys; s++) {
        if (k_pos[s] > q_pos[t]) continue;
        largest = fmaxf(largest, dot(q + row * size, k + first + s * step, size) * scale);
    }
    for (int i = 0; i < size; i++) o[row * size + i] = 0.0f;
    for (int s = 0; s < keys; s++) {
        if (k_pos[s] > q_pos[t]) continue;
        float p = expf(dot(q + row * size, k + first + s * step, size) * scale - largest);
        for (int i = 0; i < size; i++) o[row * size + i] += p * v[first + s * step + i];
        sum += p;
    }
    for (int i = 0; i < size; i++) o[row * size + i] /= fmaxf(sum, 1.0f);
    lse[row] = largest + logf(sum);  // -inf if nothing was seen
}

// Step 2. Four warps of 32 threads, each with four of the 16 queries. In a warp,
//
//     scores:   thread i has key i of the tile, for the warp's four queries
//     softmax:  largest and sum of a query by an exchange between the 32 threads
//     output:   thread i has the channels i, i + 32, i + 64, i + 96 of the four queries
//
// so that a warp's four queries meet nobody else's: barriers are needed for the tile alone.

constexpr int WARPS = 4, OWN = 4, ROWS = WARPS * OWN, KEYS = 32, SIZE = 128, PARTS = SIZE / 32;

// A row of k has one number more than SIZE: 32 threads that read the same channel of 32 keys then
// read from 32 different banks of shared memory, and not 32 times from one.
struct Tile {
    float q[ROWS][SIZE], k[KEYS][SIZE + 1], v[KEYS][SIZE], p[ROWS][KEYS];
};

// What a warp keeps of its four queries: in registers, since all loops over it are unrolled.
struct Running {
    float largest[OWN], sum[OWN], o[OWN][PARTS];
};

// Which numbers are meant: the block's group and sample, and its first row of (queries, heads).
struct Shape {
    int queries, keys, groups, heads, size, group, sample, first;
    // Row c of the tile as a row of q; there are queries * heads rows in the group.
    __device__ bool has(int c) const { return first + c < queries * heads; }
    __device__ int query(int c) const { return (first + c) / heads; }
    __device__ long long row(int c) const {
        return (((long long)sample * queries + query(c)) * groups + group) * heads +
               (first + c) % heads;
    }
    __device__ long long key(int s) const {
        return ((long long)sample * keys + s) * groups + group;
    }
};

template <typename T> __device__ void load_queries(Tile& tile, const T* q, const Shape& is) {
    float scale = 1.0f / sqrtf((float)is.size);
    for (int i = threadIdx.x; i < ROWS * is.size; i += blockDim.x) {
        int c = i / is.size, channel = i % is.size;
        tile.q[c][channel] = is.has(c) ? up(q[is.row(c) * is.size + channel]) * scale : 0.0f;
    }
}

template <typename T>
__device__ void load_keys(Tile& tile, const T* k, const T* v, const Shape& is, int start) {
    for (int i = threadIdx.x; i < KEYS * is.size; i += blockDim.x) {
        int s = i / is.size, channel = i % is.size;
        bool there = start + s < is.keys;
        long long at = is.key(start + s) * is.size + channel;
        tile.k[s][channel] = there ? up(k[at]) : 0.0f;
        tile.v[s][channel] = there ? up(v[at]) : 0.0f;
    }
}

// The scores of this thread's key, then the softmax step: fills tile.p and scales what `my` holds.
__device__ inline void weigh(Tile& tile, Running& my, const Shape& is, const long long* q_pos,
                             long long k_pos, bool there) {
    int lane = threadIdx.x % 32, own = threadIdx.x / 32 * OWN;
    float score[OWN] = {};
    for (int i = 0; i < is.size; i++) {
#pragma unroll
        for (int n = 0; n < OWN; n++) score[n] += tile.q[own + n][i] * tile.k[lane][i];
    }
#pragma unroll
    for (int n = 0; n < OWN; n++) {
        bool visible = there && is.has(own + n) && k_pos <= q_pos[is.query(own + n)];
        float x = visible ? score[n] : minus_infinity();
        float largest = fmaxf(my.largest[n], warp_max(x));
        float factor = expf(my.largest[n] - largest), p = expf(x - largest);
        tile.p[own + n][lane] = p;
        my.sum[n] = my.sum[n] * factor + warp_sum(p);
        my.largest[n] = largest;
#pragma unroll
        for (int i = 0; i < PARTS; i++) my.o[n][i] *= factor;
    }
    __syncwarp();  // the other threads of the warp read p
}

__device__ inline void add_values(const Tile& tile, Running& my, int size) {
    int lane = threadIdx.x % 32, own = threadIdx.x / 32 * OWN;
    for (int s = 0; s < KEYS; s++) {
#pragma unroll
        for (int i = 0; i < PARTS; i++) {
            if (lane + 32 * i >= size) continue;
            float v = tile.v[s][lane + 32 * i];
#pragma unroll
            for (int n = 0; n < OWN; n++) my.o[n][i] += tile.p[own + n][s] * v;
        }
    }
}

template <typename T>
__device__ void store(const Running& my, T* o, float* lse, const Shape& is) {
    int lane = threadIdx.x % 32, own = threadIdx.x / 32 * OWN;
#pragma unroll
    for (int n = 0; n < OWN; n++) {
        if (!is.has(own + n)) continue;
        long long row = is.row(own + n);
#pragma unroll
        for (int i = 0; i < PARTS; i++) {
            int channel = lane + 32 * i;
            float value = my.o[n][i] / fmaxf(my.sum[n], 1.0f);
            if (channel < is.size) o[row * is.size + channel] = down<T>(value);
        }
        if (lane == 0) lse[row] = my.largest[n] + logf(my.sum[n]);
    }
}

template <typename T>
__device__ void attend(Tile& tile, const T* q, const T* k, const T* v, const long long* q_pos,
                       const long long* k_pos, T* o, float* lse, const Shape& is) {
    Running my = {};
#pragma unroll
    for (int n = 0; n < OWN; n++) my.largest[n] = LOWEST;
    load_queries(tile, q, is);
    long long latest = q_pos[is.query(0)];
    for (int c = 1; c < ROWS && is.has(c); c++) latest = max(latest, q_pos[is.query(c)]);
    for (int start = 0; start < is.keys; start += KEYS) {
        int s = start + threadIdx.x % 32;
        bool there = s < is.keys;
        // One barrier for two ends: nobody still uses the last tile, and all know whether to skip.
        if (!__syncthreads_or(there && k_pos[s] <= latest)) continue;
        load_keys(tile, k, v, is, start);
        __syncthreads();
        weigh(tile, my, is, q_pos, there ? k_pos[s] : 0, there);
        add_values(tile, my, is.size);
    }
    store(my, o, lse, is);
}

// To be launched with 128 threads and a grid of (rows / 16 rounded up, groups, batch), where rows =
// queries * heads. size is at most 128.

template <typename T>
__device__ void attention_tiled(const T* q, const T* k, const T* v, const long long* q_pos,
                                const long long* k_pos, T* o, float* lse, int batch, int queries,
                                int keys, int groups, int heads, int size) {
    __shared__ Tile tile;
    if (size > SIZE || blockDim.x != 32 * WARPS) __trap();
    Shape is = {queries, keys, groups, heads, size, (int)blockIdx.y, (int)blockIdx.z,
                (int)blockIdx.x * ROWS};
    if (is.sample >= batch || is.group >= groups || !is.has(0)) return;  // the whole block at once
    attend(tile, q, k, v, q_pos, k_pos, o, lse, is);
}

extern "C" __global__ void attention_tiled_f32(const float* q, const float* k, const float* v,
                                               const long long* q_pos, const long long* k_pos,
                                               float* o, float* lse, int batch, int queries,
                                               int keys, int groups, int heads, int size) {
    attention_tiled(q, k, v, q_pos, k_pos, o, lse, batch, queries, keys, groups, heads, size);
}

// bfloat16 q, k, v and o; scores, sums and lse are float32.

extern "C" __global__ void attention_tiled_bf16(const __nv_bfloat16* q, const __nv_bfloat16* k,
                                                const __nv_bfloat16* v, const long long* q_pos,
                                                const long long* k_pos, __nv_bfloat16* o,
                                                float* lse, int batch, int queries, int keys,
                                                int groups, int heads, int size) {
    attention_tiled(q, k, v, q_pos, k_pos, o, lse, batch, queries, keys, groups, heads, size);
}

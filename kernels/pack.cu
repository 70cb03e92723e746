// Buckets: many tensors packed into one flat buffer, and back.
//
//   tensors        [ a a a ]   [ b ]   [ ]   [ d d d d ]           anywhere in memory
//   flat           [ a a a b d d d d ]                             one message instead of four
//   offsets        0     3 4 4       8                             where each begins, and the end
//
// A model has hundreds of small tensors. Each message costs some microseconds however short it is, and
// so does each launch of a kernel; hence gradients travel in buckets of some megabytes. Packing can
// change the type on the way (bfloat16 halves the bytes) and multiply by a scale (1 / ranks makes a
// sum a mean): the elements pass through registers anyway, so both are free.
//
//   convert_*        one launch per tensor. Simple; a hundred launches of a few microseconds each,
//                    and most of them too small to keep a GPU busy.
//   pack_search_*    one launch for all. The tensor of an element is found by binary search in the
//                    offsets: log2(tensors) loads per element, from the cache, but one after another.
//   pack_blocks_*    one launch for all, with a map made by the host: block k copies one chunk of one
//                    tensor. Two loads per block instead of a search per element, and within a chunk
//                    four elements per load.
//
// `tensors` is a table of pointers, itself in the memory of the device.
//
// Real systems: the block map is `multi_tensor_apply` of NVIDIA's Apex and PyTorch's `_foreach`
// functions; PyTorch's data parallelism copies each gradient into its bucket by a launch of its own,
// or makes the gradients views of the bucket, so that nothing need be copied at all.
#include "minidist.cuh"

// --- step 1: a launch per tensor --------------------------------------------------------------------

// to[i] = from[i] * scale. Packing and unpacking are the same here: `to` or `from` is a piece of the
// flat buffer.
template <typename To, typename From>
__device__ void convert(To* to, const From* from, float scale, long long n) {
    for (long long i = first_index(); i < n; i += index_stride())
        to[i] = down<To>(up(from[i]) * scale);
}

extern "C" __global__ void convert_f32_f32(float* to, const float* from, float scale, long long n) {
    convert(to, from, scale, n);
}
extern "C" __global__ void convert_f32_bf16(__nv_bfloat16* to, const float* from, float scale,
                                            long long n) {
    convert(to, from, scale, n);
}
extern "C" __global__ void convert_bf16_f32(float* to, const __nv_bfloat16* from, float scale,
                                            long long n) {
    convert(to, from, scale, n);
}

// --- step 2: one launch, with a search per element ----------------------------------------------------

// Return the tensor of element i of the flat buffer: the last one that begins at i or before. With
// empty tensors several begin at the same place, and the last of them is the one that has elements.
__device__ int owner(const long long* offsets, int count, long long i) {
    int low = 0, high = count;  // offsets[low] <= i < offsets[high]
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        if (offsets[middle] <= i)
            low = middle;
        else
            high = middle;
    }
    return low;
}

template <typename Flat, typename T>
__device__ void pack_search(Flat* flat, const T* const* tensors, const long long* offsets,
                            int count, float scale) {
    const long long n = offsets[count];
    for (long long i = first_index(); i < n; i += index_stride()) {
        const int t = owner(offsets, count, i);
        flat[i] = down<Flat>(up(tensors[t][i - offsets[t]]) * scale);
    }
}

template <typename Flat, typename T>
__device__ void unpack_search(const Flat* flat, T* const* tensors, const long long* offsets,
                              int count, float scale) {
    const long long n = offsets[count];
    for (long long i = first_index(); i < n; i += index_stride()) {
        const int t = owner(offsets, count, i);
        tensors[t][i - offsets[t]] = down<T>(up(flat[i]) * scale);
    }
}

extern "C" __global__ void pack_search_f32(float* flat, const float* const* tensors,
                                           const long long* offsets, int count, float scale) {
    pack_search(flat, tensors, offsets, count, scale);
}
extern "C" __global__ void unpack_search_f32(const float* flat, float* const* tensors,
                                             const long long* offsets, int count, float scale) {
    unpack_search(flat, tensors, offsets, count, scale);
}
// The tensors are float32, the flat buffer bfloat16.
extern "C" __global__ void pack_search_bf16(__nv_bfloat16* flat, const float* const* tensors,
                                            const long long* offsets, int count, float scale) {
    pack_search(flat, tensors, offsets, count, scale);
}
extern "C" __global__ void unpack_search_bf16(const __nv_bfloat16* flat,
                                              float* const* tensors,
                                              const long long* offsets, int count, float scale) {
    unpack_search(flat, tensors, offsets, count, scale);
}

// --- step 3: one launch, with a map of the blocks -----------------------------------------------------
//
// chunk = 4 elements, the tensors from above:
//
//   block              0    1    2          block b: tensor tensor_of[b], elements from begin_of[b]
//   tensor_of          0    1    3          up to the next multiple of chunk, or the end of the tensor
//   begin_of           0    0    0
//
// In earnest a chunk has some ten thousand elements, and a big tensor has many.

// The threads of one block copy n elements: four at a time where both addresses allow it. Whoever
// pads the offsets to multiples of four elements has all of them allow it.
template <typename To, typename From>
__device__ void copy_chunk(To* to, const From* from, float scale, long long n) {
    const long long groups = aligned(to, 4) && aligned(from, 4) ? n / 4 : 0;
    for (long long i = threadIdx.x; i < groups; i += blockDim.x) {
        const float4 x = load4(from + 4 * i);
        store4(to + 4 * i, make_float4(x.x * scale, x.y * scale, x.z * scale, x.w * scale));
    }
    for (long long i = 4 * groups + threadIdx.x; i < n; i += blockDim.x)
        to[i] = down<To>(up(from[i]) * scale);
}

// What block blockIdx.x has to do: elements begin ... begin + n of a tensor.
struct Chunk {
    int tensor;
    long long begin, n;
};
__device__ Chunk my_chunk(const long long* offsets, const int* tensor_of, const long long* begin_of,
                          int chunk) {
    const int t = tensor_of[blockIdx.x];
    const long long begin = begin_of[blockIdx.x], left = offsets[t + 1] - offsets[t] - begin;
    return Chunk{t, begin, left < chunk ? left : chunk};
}

template <typename Flat, typename T>
__device__ void pack_blocks(Flat* flat, const T* const* tensors, const long long* offsets,
                            const int* tensor_of, const long long* begin_of, int chunk,
                            float scale) {
    const Chunk c = my_chunk(offsets, tensor_of, begin_of, chunk);
    copy_chunk(flat + offsets[c.tensor] + c.begin, tensors[c.tensor] + c.begin, scale, c.n);
}

template <typename Flat, typename T>
__device__ void unpack_blocks(const Flat* flat, T* const* tensors, const long long* offsets,
                              const int* tensor_of, const long long* begin_of, int chunk,
                              float scale) {
    const Chunk c = my_chunk(offsets, tensor_of, begin_of, chunk);
    copy_chunk(tensors[c.tensor] + c.begin, flat + offsets[c.tensor] + c.begin, scale, c.n);
}

extern "C" __global__ void pack_blocks_f32(float* flat, const float* const* tensors,
                                           const long long* offsets, const int* tensor_of,
                                           const long long* begin_of, int chunk, float scale) {
    pack_blocks(flat, tensors, offsets, tensor_of, begin_of, chunk, scale);
}
extern "C" __global__ void unpack_blocks_f32(const float* flat, float* const* tensors,
                                             const long long* offsets, const int* tensor_of,
                                             const long long* begin_of, int chunk, float scale) {
    unpack_blocks(flat, tensors, offsets, tensor_of, begin_of, chunk, scale);
}
extern "C" __global__ void pack_blocks_bf16(__nv_bfloat16* flat, const float* const* tensors,
                                            const long long* offsets, const int* tensor_of,
                                            const long long* begin_of, int chunk, float scale) {
    pack_blocks(flat, tensors, offsets, tensor_of, begin_of, chunk, scale);
}
extern "C" __global__ void unpack_blocks_bf16(const __nv_bfloat16* flat,
                                              float* const* tensors,
                                              const long long* offsets, const int* tensor_of,
                                              const long long* begin_of, int chunk, float scale) {
    unpack_blocks(flat, tensors, offsets, tensor_of, begin_of, chunk, scale);
}

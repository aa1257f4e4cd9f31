// Row copies: token embeddings, the last token of each sequence, and the first columns of every row.

#include "block.cuh"

// Copies a row of `columns` elements with all threads of the block.
DEVICE void copy_row(const T* from, T* to, u32 columns) {
    if (packs_fit(columns)) {
        for (u32 i = threadIdx.x; i < columns / PACK; i += blockDim.x) {
            store_pack(to + i * PACK, load_pack(from + i * PACK));
        }
    } else {
        for (u32 i = threadIdx.x; i < columns; i += blockDim.x) to[i] = from[i];
    }
}

// out[row] = table[tokens[row]]. Grid (rows). Moves 2 x columns elements per row; no arithmetic.
KERNEL(embed, const u32* tokens, const T* table, T* out, u32 columns) {
    SAY_WHEN();
    wait_for_previous();
    let_next_start();
    copy_row(table + u64(tokens[blockIdx.x]) * columns, out + u64(blockIdx.x) * columns, columns);
}

// out[s] = x[s * tokens + tokens - 1]: the last of each sequence's `tokens` rows.
// Grid (sequences). Moves 2 x columns elements per sequence; no arithmetic.
KERNEL(select_last, const T* x, T* out, u32 tokens, u32 columns) {
    SAY_WHEN();
    wait_for_previous();
    let_next_start();
    u64 row = u64(blockIdx.x) * tokens + tokens - 1;
    copy_row(x + row * columns, out + u64(blockIdx.x) * columns, columns);
}

// out[row] = the first `kept` columns of x[row]. Grid (rows). Moves 2 x kept elements per row; no arithmetic.
KERNEL(narrow, const T* x, T* out, u32 columns, u32 kept) {
    SAY_WHEN();
    wait_for_previous();
    let_next_start();
    const T* from = x + u64(blockIdx.x) * columns;
    T* to = out + u64(blockIdx.x) * kept;
    if (packs_fit(columns)) {
        copy_row(from, to, kept);
    } else {
        for (u32 i = threadIdx.x; i < kept; i += blockDim.x) to[i] = from[i];
    }
}

/* Per-unit gradients of a convolution's kernel: every output gradient of an image times what lay under the kernel there.

   Nothing is copied out but the image with its padding and the output gradients with channels last. A block of the kernel,
   some columns of some lines for as many output channels as a register has lanes, is added up over all places of the image
   before it is written; its square is added to the unit's. */

#include <stdlib.h>
#include <string.h>

#if defined(__AVX512F__)
enum { LANES = 16, MOST = 16 };  /* numbers in a register; registers that add up */
#elif defined(__AVX2__)
enum { LANES = 8, MOST = 12 };
#else
enum { LANES = 4, MOST = 12 };
#endif
enum { COLUMNS = 8 };  /* of a line of the kernel that are added up together */
typedef float lanes __attribute__((vector_size(4 * LANES), aligned(4)));
typedef struct { long rows, c, h, w, p, oh, ow, kh, kw, sh, sw, ph, pw; } shape;

/* `many` lines of the kernel, `wide` columns of each, for LANES output channels. */
static inline __attribute__((always_inline)) void add_up(
    const shape *s, const float *const *from, const float *g, long step, int many, int wide, lanes *made)
{
    const long line = s->w + 2 * s->pw, image = s->c * (s->h + 2 * s->ph) * line;
    lanes sum[MOST];
    for (int i = 0; i < many * wide; i++) sum[i] = (lanes){0};
    for (long y = 0; y < s->rows * s->oh; y++)
        for (long x = 0; x < s->ow; x++) {
            const lanes each = *(const lanes *)(g + (y * s->ow + x) * step);
            const long at = y / s->oh * image + y % s->oh * s->sh * line + x * s->sw;
            for (int r = 0; r < many; r++)
                for (int i = 0; i < wide; i++) sum[r * wide + i] += each * from[r][at + i];
        }
    for (int i = 0; i < many * wide; i++) made[i] = sum[i];
}

/* The same for numbers that only a caller knows: each pair that is ever asked for is compiled with its own. */
static void block(const shape *s, const float *const *from, const float *g, long step, int many, int wide, lanes *made)
{
    switch (wide) {
#define WIDE(n)                                                                                          \
    case n:                                                                                              \
        if (many == MOST / n) add_up(s, from, g, step, MOST / n, n, made);                               \
        else for (int r = 0; r < many; r++) add_up(s, from + r, g, step, 1, n, made + r * n);            \
        break;
    WIDE(1) WIDE(2) WIDE(3) WIDE(4) WIDE(5) WIDE(6) WIDE(7) WIDE(8)
    }
}

static void put(const lanes *made, long count, long p, long channels, float *to)
{
    for (long i = 0; i < count; i++, to += p) {
        if (channels >= LANES) *(lanes *)to = made[i];
        else memcpy(to, made + i, 4 * channels);
    }
}

/* x [units x rows, c, h, w], g [units x rows, p, oh, ow] -> out [units, c, kh, kw, p], unless that is null, and their squared
   lengths. Returns whether there was memory for it. */
int discreet_kernels(const float *x, const float *g, long units, const long *numbers, float *out, float *squares)
{
    shape s;
    memcpy(&s, numbers, sizeof s);
    const long line = s.w + 2 * s.pw, high = s.h + 2 * s.ph, places = s.oh * s.ow, step = (s.p + LANES - 1) / LANES * LANES;
    const long lines = s.c * s.kh;
    float *image = calloc(s.rows * s.c * high * line, 4), *last = calloc(s.rows * places * step, 4);
    for (long u = 0; image && last && u < units; u++, x += s.rows * s.c * s.h * s.w, g += s.rows * s.p * places) {
        lanes square = {0};
        for (long i = 0; i < s.rows * s.c * s.h; i++)
            memcpy(image + (i / s.h * high + i % s.h + s.ph) * line + s.pw, x + i * s.w, 4 * s.w);
        for (long j = 0; j < s.rows * s.p; j++)
            for (long i = 0; i < places; i++) last[(j / s.p * places + i) * step + j % s.p] = g[j * places + i];
        for (long column = 0; column < s.kw; column += COLUMNS) {
            const int wide = s.kw - column < COLUMNS ? s.kw - column : COLUMNS;
            for (long first = 0; first < lines; first += MOST / wide) {
                const int many = lines - first < MOST / wide ? lines - first : MOST / wide;
                const float *from[MOST];
                for (int r = 0; r < many; r++)
                    from[r] = image + ((first + r) / s.kh * high + (first + r) % s.kh) * line + column;
                for (long j = 0; j < s.p; j += LANES) {
                    lanes made[MOST];
                    block(&s, from, last + j, step, many, wide, made);
                    for (int i = 0; i < many * wide; i++) square += made[i] * made[i];
                    for (int r = 0; out && r < many; r++)
                        put(made + r * wide, wide, s.p, s.p - j, out + ((u * lines + first + r) * s.kw + column) * s.p + j);
                }
            }
        }
        squares[u] = 0;
        for (int i = 0; i < LANES; i++) squares[u] += square[i];
    }
    const int held = image && last;
    free(image);
    free(last);
    return held;
}

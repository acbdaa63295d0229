/* The transform of normal.py, and with AES instructions the whole of stream.py, in C: the same bits, several times as
   fast. */

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "normal.h"

static inline float as_float(int32_t i) { float f; memcpy(&f, &i, 4); return f; }
static inline int32_t as_int(float f) { int32_t i; memcpy(&i, &f, 4); return i; }

static int pairs(const uint32_t *restrict a, const uint32_t *restrict b, long n, float scale,
                 float *restrict x, float *restrict y)
{
    int rare = 0;
    for (long i = 0; i < n; i++) {
        int32_t k = (int32_t)(a[i] >> 1 | 1);
        rare |= k < RARE;
        float low = (float)((int32_t)((uint32_t)k << 25) >> 25);
        int32_t bits = as_int((float)k);
        int32_t step = (bits - MIDDLE) & EXPONENT;
        float m = as_float(bits - step);
        float z = ((m - 0x1p31f) + low) / (m + 0x1p31f);
        float q = z * z;
        float e = ((LOG0 * q + LOG1) * q + LOG2) * z + (float)step * LOG_STEP;
        float r = sqrtf(e) * scale;
        float t = (float)(int32_t)b[i] * 0x1p-31f;
        float h = t * t;
        float s = ((((SIN0 * h + SIN1) * h + SIN2) * h + SIN3) * h + SIN4) * t;
        float c = (((COS0 * h + COS1) * h + COS2) * h + COS3) * h + COS4;
        x[i] = (1.0f - s * s) * r;
        y[i] = (s * c) * r;
    }
    return rare;
}

/* Tiles [tiles, (a, b), half] to [tiles, (x, y), half]; true where some pair is rare. */
int discreet_tiles(const uint32_t *words, long tiles, long half, float scale, float *out)
{
    int rare = 0;
    for (long i = 0; i < 2 * tiles * half; i += 2 * half)
        rare |= pairs(words + i, words + i + half, half, scale, out + i, out + i + half);
    return rare;
}

#ifdef __AES__
#include <immintrin.h>

enum { HALF = TILE / 2, PART = 512 };

static inline __m128i mixed(__m128i key, __m128i assist)
{
    key = _mm_xor_si128(key, _mm_slli_si128(key, 4));
    key = _mm_xor_si128(key, _mm_slli_si128(key, 8));
    return _mm_xor_si128(key, assist);
}

/* The 15 round keys of AES-256 (FIPS 197, 5.2), two at a time. */
static void schedule(const uint8_t *key, __m128i *round)
{
    __m128i even = _mm_loadu_si128((const __m128i *)key), odd = _mm_loadu_si128((const __m128i *)(key + 16));
#define TWO(i, constant)                                                                    \
    round[i] = even;                                                                        \
    round[i + 1] = odd;                                                                     \
    even = mixed(even, _mm_shuffle_epi32(_mm_aeskeygenassist_si128(odd, constant), 0xff));  \
    odd = mixed(odd, _mm_shuffle_epi32(_mm_aeskeygenassist_si128(even, 0), 0xaa));
    TWO(0, 1) TWO(2, 2) TWO(4, 4) TWO(6, 8) TWO(8, 16) TWO(10, 32) TWO(12, 64)
#undef TWO
    round[14] = even;
}

#define BIG(n) ((long long)__builtin_bswap64(n))
#if defined(__VAES__) && defined(__AVX512F__)
#define LANES 4
typedef __m512i lanes;
#define SPREAD(key) _mm512_broadcast_i32x4(key)
#define ROUND _mm512_aesenc_epi128
#define LAST _mm512_aesenclast_epi128
#define XOR _mm512_xor_si512
#define STORE(to, v) _mm512_storeu_si512((void *)(to), v)
#define COUNTERS(high, n) _mm512_set_epi64(BIG((n) + 3), high, BIG((n) + 2), high, BIG((n) + 1), high, BIG(n), high)
#else
#define LANES 1
typedef __m128i lanes;
#define SPREAD(key) (key)
#define ROUND _mm_aesenc_si128
#define LAST _mm_aesenclast_si128
#define XOR _mm_xor_si128
#define STORE(to, v) _mm_storeu_si128((__m128i *)(to), v)
#define COUNTERS(high, n) _mm_set_epi64x(BIG(n), high)
#endif

/* PART words of keystream from counter block `number` of this step on. */
static void keystream(const __m128i *round, uint64_t step, uint64_t number, uint32_t *out)
{
    const long long high = BIG(step);
    for (int done = 0; done < PART / 4; done += 8 * LANES) {
        lanes state[8], key = SPREAD(round[0]);
        for (int j = 0; j < 8; j++) state[j] = XOR(COUNTERS(high, number + done + j * LANES), key);
        for (int i = 1; i < 14; i++) {
            key = SPREAD(round[i]);
            for (int j = 0; j < 8; j++) state[j] = ROUND(state[j], key);
        }
        key = SPREAD(round[14]);
        for (int j = 0; j < 8; j++) STORE(out + 4 * (done + j * LANES), LAST(state[j], key));
    }
}

/* The part of PART numbers made for positions `at` and on that lies in [offset, end). */
static void put(const float *made, uint64_t at, uint64_t offset, uint64_t end, float *out)
{
    uint64_t from = at < offset ? offset : at, to = at + PART > end ? end : at + PART;
    if (from < to) memcpy(out + (from - offset), made + (from - at), 4 * (to - from));
}

/* `count` numbers of a step from position `offset` on. Rare pairs are listed as (number of the pair, a, b), at most `room`
   of them; the return value is how many there are. */
long discreet_fill(const uint8_t *key, uint64_t step, uint64_t offset, uint64_t count, float scale, float *out,
                   uint64_t *rare, long room)
{
    __m128i round[15];
    uint32_t a[PART], b[PART];
    float x[PART], y[PART];
    const uint64_t end = offset + count;
    long found = 0;
    schedule(key, round);
    for (uint64_t tile = offset / TILE; tile * TILE < end; tile++)
        for (uint64_t j = 0; j < HALF; j += PART) {
            const uint64_t left = tile * TILE + j, right = left + HALF;
            if ((left >= end || left + PART <= offset) && (right >= end || right + PART <= offset)) continue;
            const int inside = left >= offset && right + PART <= end;
            keystream(round, step, left / 4, a);
            keystream(round, step, right / 4, b);
            if (pairs(a, b, PART, scale, inside ? out + (left - offset) : x, inside ? out + (right - offset) : y))
                for (int i = 0; i < PART; i++)
                    if (a[i] < 2 * RARE && found++ < room) {
                        rare[3 * found - 3] = tile * HALF + j + i;
                        rare[3 * found - 2] = a[i];
                        rare[3 * found - 1] = b[i];
                    }
            if (!inside) {
                put(x, left, offset, end, out);
                put(y, right, offset, end, out);
            }
        }
    return found;
}
#endif

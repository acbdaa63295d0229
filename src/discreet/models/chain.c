/* Training of chains of linear layers and activations: model after model, a whole pass over its rows at a time.

   A model's numbers stay near the processor while it sees all its batches; rows are read where they lie; the optimizer takes
   its step on each block of a gradient as soon as that is known. Every product is made of one block: HIGH rows by WIDE
   registers of columns, added up over a third dimension. Lines of weights and activations have room for whole registers, and
   an odd number of cache lines, so that they do not fall on each other in the cache. chain.py compiles this text. */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__AVX512F__)
enum { LANES = 16, HIGH = 6, WIDE = 4 };  /* numbers in a register; a block of sums is HIGH x WIDE registers */
#elif defined(__AVX2__)
enum { LANES = 8, HIGH = 6, WIDE = 2 };
#else
enum { LANES = 4, HIGH = 6, WIDE = 2 };
#endif
enum { DEEP = 256 };  /* places that are added up before a block of sums is put down */
enum { SGD, ADAM, ADAMW };
enum { NONE, TANH, RELU, SIGMOID };
typedef float lanes __attribute__((vector_size(4 * LANES), aligned(4)));
typedef int32_t bits __attribute__((vector_size(4 * LANES), aligned(4)));
typedef struct { long in, out, step, biased, after; } layer;  /* step: from one line of weights to the next */
typedef struct { double kind, rate, momentum, decay, one, two, small; } recipe;
typedef struct { long kind; float rate, momentum, decay, kept, one, two, fresh, root, small; } move;  /* a recipe at one step */

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 8")
#define ALL(x) ((lanes){0} + (x))
#define PICK(mask, yes, no) ((lanes)(((bits)(mask) & (bits)(yes)) | (~(bits)(mask) & (bits)(no))))

/* to (+)= `high` lines of one factor times `wide` registers of columns of the other, over `deep` places. The lines are from[r],
   or with `across` places at, at + 1, … of from[0], from[1], … */
INLINE void block(
    const float *const *from, long at, const float *with, long step, long deep, float *to, long stride, int more, int across,
    int high, int wide)
{
    lanes sum[HIGH * WIDE];
    const float *line[HIGH];
    UNROLL for (int r = 0; r < high; r++) {
        if (!across) line[r] = from[r] + at;
        UNROLL for (int i = 0; i < wide; i++)
            sum[r * WIDE + i] = more ? *(const lanes *)(to + r * stride + i * LANES) : (lanes){0};
    }
    for (long k = 0; k < deep; k++, with += step) {
        lanes other[WIDE];
        const float *column = across ? from[k] + at : 0;
        UNROLL for (int i = 0; i < wide; i++) other[i] = *(const lanes *)(with + i * LANES);
        UNROLL for (int r = 0; r < high; r++) {
            const lanes one = ALL(across ? column[r] : line[r][k]);
            UNROLL for (int i = 0; i < wide; i++) sum[r * WIDE + i] += one * other[i];
        }
    }
    UNROLL for (int r = 0; r < high; r++)
        UNROLL for (int i = 0; i < wide; i++) *(lanes *)(to + r * stride + i * LANES) = sum[r * WIDE + i];
}

/* The same for sizes that only a caller knows: each is compiled with its own. */
#define SIZE(r, i) case (r) * 8 + (i): block(from, at, with, step, deep, to, stride, more, ACROSS, r, i); break;
#define SIZES(r) SIZE(r, 1) SIZE(r, 2) SIZE(r, 3) SIZE(r, 4)
#define BLOCKS(name)                                                                                                        \
    static void name(const float *const *from, long at, const float *with, long step, long deep, float *to, long stride,    \
                     int more, long high, long wide)                                                                        \
    {                                                                                                                       \
        switch (high * 8 + wide) { SIZES(1) SIZES(2) SIZES(3) SIZES(4) SIZES(5) SIZES(6) }                                  \
    }
#define ACROSS 0
BLOCKS(along)
#undef ACROSS
#define ACROSS 1
BLOCKS(across)

static long room_of(const layer *it) { return (it->out + LANES - 1) / LANES * LANES; }
static long least(long a, long b) { return a < b ? a : b; }

/* to[rows, columns] (+)= the lines from[rows] of `deep` numbers, times with[deep, columns]; columns fill registers. */
static void product(
    const float *const *from, long rows, const float *with, long step, long deep, long columns, float *to, long stride,
    int more)
{
    for (long k = 0; k < deep; k += DEEP)
        for (long j = 0; j < columns; j += WIDE * LANES)
            for (long r = 0; r < rows; r += HIGH)
                along(from + r, k, with + k * step + j, step, least(DEEP, deep - k), to + r * stride + j, stride, more || k,
                      least(HIGH, rows - r), least(WIDE, (columns - j) / LANES));
}

/* e^x to about one unit in the last place (the polynomial of Cephes). */
INLINE lanes power(lanes x)
{
    x = PICK(x < ALL(-87.0f), ALL(-87.0f), PICK(x > ALL(88.0f), ALL(88.0f), x));
    const lanes shifted = x * 1.44269504f + 12582912.0f, whole = shifted - 12582912.0f;
    const lanes r = x - whole * 0.693359375f + whole * 2.12194440e-4f;
    lanes sum = r * 1.9875691500e-4f + 1.3981999507e-3f;
    sum = sum * r + 8.3334519073e-3f;
    sum = sum * r + 4.1665795894e-2f;
    sum = sum * r + 1.6666665459e-1f;
    sum = sum * r + 5.0000001201e-1f;
    sum = sum * r * r + r + 1.0f;
    return (lanes)((bits)sum + (((bits)shifted - 0x4B400000) << 23));
}

/* An activation in place, and the gradient in place from what came out of it. */
static void activate(float *x, long count, long kind)
{
    for (float *end = x + count; x < end; x += LANES) {
        lanes *at = (lanes *)x;
        if (kind == RELU) *at = PICK(*at < ALL(0.0f), ALL(0.0f), *at);
        if (kind == SIGMOID) *at = 1.0f / (1.0f + power(-*at));
        if (kind == TANH) *at = 1.0f - 2.0f / (1.0f + power(*at * 2.0f));
    }
}

static void deactivate(float *g, const float *y, long count, long kind)
{
    for (float *end = g + count; g < end; g += LANES, y += LANES) {
        lanes *at = (lanes *)g;
        const lanes out = *(const lanes *)y;
        if (kind == RELU) *at = PICK(out <= ALL(0.0f), ALL(0.0f), *at);
        if (kind == SIGMOID) *at *= out * (1.0f - out);
        if (kind == TANH) *at *= 1.0f - out * out;
    }
}

/* Scores of one row become the gradient of its cross-entropy, over `batch`; what lies beyond the classes becomes zero. */
static void slope(float *x, long classes, long room, long label, long batch)
{
    for (long j = classes; j < room; j++) x[j] = -INFINITY;
    lanes most = *(const lanes *)x, sum = {0};
    for (long j = LANES; j < room; j += LANES) {
        const lanes each = *(const lanes *)(x + j);
        most = PICK(each > most, each, most);
    }
    float top = most[0], total = 0.0f;
    for (int i = 1; i < LANES; i++) top = most[i] > top ? most[i] : top;
    for (long j = 0; j < room; j += LANES) {
        lanes *at = (lanes *)(x + j);
        sum += *at = power(*at - top);
    }
    for (long j = classes; j < room; j++) x[j] = 0.0f;
    for (int i = 0; i < LANES; i++) total += sum[i];
    const float share = 1.0f / (total * batch);
    for (long j = 0; j < room; j++) x[j] *= share;
    x[label] -= 1.0f / batch;
}

/* The optimizer's step for `count` numbers in line, as torch takes it. */
static void advance(
    const move *how, float *restrict p, float *restrict first, float *restrict second, const float *restrict g, long count)
{
    if (how->kind == SGD) {
        for (long i = 0; i < count; i++) {
            first[i] = how->momentum * first[i] + (g[i] + how->decay * p[i]);
            p[i] -= how->rate * first[i];
        }
        return;
    }
    for (long i = 0; i < count; i++) {
        const float slope = g[i] + how->decay * p[i];
        first[i] += how->one * (slope - first[i]);
        second[i] = how->two * second[i] + how->fresh * slope * slope;
        p[i] = how->kept * p[i] - how->rate * first[i] / (sqrtf(second[i]) * how->root + how->small);
    }
}

static move at_step(const recipe *how, long step)
{
    move now = {how->kind, how->rate, how->momentum, how->decay, 1, 1 - how->one, how->two, 1 - how->two, 1, how->small};
    if (now.kind == SGD) return now;
    if (now.kind == ADAMW) now.kept = 1.0 - how->rate * how->decay, now.decay = 0.0;
    now.rate = how->rate / (1.0 - pow(how->one, step));
    now.root = 1.0 / sqrt(1.0 - pow(how->two, step));
    return now;
}

/* The gradient of a layer, block by block, and the step along it. Lines of x and of g belong to each other. */
static void learn(
    const layer *it, const move *how, const float *const *x, const float *g, long rows, float *p, float *first, float *second)
{
    float made[HIGH * WIDE * LANES];
    const long room = room_of(it);
    for (long i = 0; i < it->in; i += HIGH)
        for (long j = 0; j < room; j += WIDE * LANES) {
            const long wide = least(WIDE * LANES, room - j), high = least(HIGH, it->in - i);
            across(x, i, g + j, it->step, rows, made, wide, 0, high, wide / LANES);
            for (long r = 0; r < high; r++) {
                const long at = (i + r) * it->step + j;
                advance(how, p + at, first + at, second + at, made + r * wide, wide);
            }
        }
    for (long j = 0; j < room && it->biased; j += WIDE * LANES) {
        const long wide = least(WIDE * LANES, room - j), at = it->in * it->step + j;
        memset(made, 0, 4 * wide);
        for (long b = 0; b < rows; b++)
            for (long i = 0; i < wide; i++) made[i] += g[b * it->step + j + i];
        advance(how, p + at, first + at, second + at, made, wide);
    }
}

/* The lines of one factor, for a product. */
static const float *const *lines(const float **to, const float *x, long step, long rows)
{
    for (long b = 0; b < rows; b++) to[b] = x + b * step;
    return to;
}

/* Weights [in, step] as [out, stride]. */
static void turn(const layer *it, const float *p, float *to, long stride)
{
    for (long o = 0; o < it->out; o++)
        for (long i = 0; i < it->in; i++) to[o * stride + i] = p[i * it->step + o];
}

typedef struct { float **out, **turned, *g[2]; const float **x, **y; } space;

static void step(
    const layer *layers, long deep, const move *how, const int64_t *labels, const int64_t *chosen, long rows, const space *s,
    float *p, float *first, float *second)
{
    long place = 0;
    const float *const *x = s->x;
    for (long l = 0; l < deep; l++) {
        const layer *it = layers + l;
        const long room = room_of(it);
        const float *bias = p + place + it->in * it->step;
        for (long b = 0; b < rows && it->biased; b++) memcpy(s->out[l] + b * it->step, bias, 4 * room);
        product(x, rows, p + place, it->step, it->in, room, s->out[l], it->step, it->biased);
        activate(s->out[l], rows * it->step, it->after);
        x = lines(s->y, s->out[l], it->step, rows);
        place += (it->in + 1) * it->step;
    }
    const layer *last = layers + deep - 1;
    float *g = s->out[deep - 1];
    for (long b = 0; b < rows; b++) slope(g + b * last->step, last->out, room_of(last), labels[chosen[b]], rows);
    for (long l = deep; l--;) {
        const layer *it = layers + l, *before = it - 1;
        float *back = s->g[l & 1];
        place -= (it->in + 1) * it->step;
        if (l) {
            turn(it, p + place, s->turned[l], before->step);
            x = lines(s->y, g, it->step, rows);
            product(x, rows, s->turned[l], before->step, it->out, room_of(before), back, before->step, 0);
            deactivate(back, s->out[l - 1], rows * before->step, before->after);
            x = lines(s->y, s->out[l - 1], before->step, rows);
        } else
            x = s->x;
        learn(it, how, x, g, rows, p + place, first + place, second + place);
        g = back;
    }
}

/* One pass of each of `models` over its own order of `count` rows. p, first and second are [models, size]: a layer's weights
   [in, step] after another's, each with its bias as one more line. Returns whether there was memory for it. */
int discreet_chain(
    const float *rows, const int64_t *labels, const int64_t *order, long models, long count, long batch, const layer *layers,
    long deep, const recipe *how, long taken, float *p, float *first, float *second, long size)
{
    long held = 0;
    batch = least(batch, count);
    for (long l = 0; l < deep; l++) held += 3 * batch * layers[l].step + (l ? layers[l].out * layers[l - 1].step : 0);
    float *memory = 0, *out[deep], *turned[deep];
    const float **pointers = malloc(2 * batch * sizeof *pointers);
    const int failed = posix_memalign((void **)&memory, 64, 4 * held) || !pointers;
    if (!failed) {
        space s = {out, turned, {memory, memory}, pointers, pointers + batch};
        float *at = memset(memory, 0, 4 * held);
        for (long l = 0; l < deep; l++) s.g[1] += batch * layers[l].step;
        at = s.g[1] + (s.g[1] - s.g[0]);
        for (long l = 0; l < deep; l++) {
            out[l] = at, turned[l] = at += batch * layers[l].step;
            at += l ? layers[l].out * layers[l - 1].step : 0;
        }
        for (long m = 0; m < models; m++, order += count, p += size, first += size, second += size)
            for (long b = 0; b < count; b += batch) {
                const long some = least(batch, count - b);
                const move now = at_step(how, taken + b / batch + 1);
                for (long i = 0; i < some; i++) s.x[i] = rows + order[b + i] * layers[0].in;
                step(layers, deep, &now, labels, order + b, some, &s, p, first, second);
            }
    }
    free(memory), free(pointers);
    return !failed;
}

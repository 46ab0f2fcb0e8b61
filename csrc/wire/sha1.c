/* Blocks are added in three ways. AVX-512 adds those of up to 16 messages at once, each in a lane of its vectors (1 KiB
 * of each: 0.2 us); for a few messages the x86 SHA instructions are faster (0.7 us); all other CPUs have plain C. The
 * CPU is asked when the library is loaded. */
#include "wire/sha1.h"

#include <string.h>

#include "base/endian.h"

enum {
    BLOCK = 64,
    LANES_MIN = 5 /* messages that take longer one after the other */
};
_Static_assert(RP_HMAC_JOBS == 16, "the lanes of a vector");
static const uint32_t START[5] = {0x67452301u, 0xEFCDAB89u, 0x98BADCFEu, 0x10325476u, 0xC3D2E1F0u};

/* A message as runs of whole blocks. */
typedef struct lane {
    uint32_t state[5];
    uint32_t run; /* the one to be added next */
    const uint8_t *data[3];
    uint64_t blocks[3];
} lane;

/* Add a block, whose 16 words are in `w` and are replaced, to the state `s`: of one message, or of each lane. */
#define ROTATED(value, bits) ((value) << (bits) | (value) >> (32 - (bits)))
#define ADD_BLOCK(type, s, w)                                                                                          \
    do {                                                                                                               \
        type v[5]; /* a to e; they move by one with each round */                                                      \
        memcpy(v, s, sizeof v);                                                                                        \
        _Pragma("GCC unroll 80") for (uint32_t i = 0; i < 80; i++) {                                                   \
            type *e = &v[(84 - i) % 5], *b = &v[(81 - i) % 5], c = v[(82 - i) % 5], d = v[(83 - i) % 5];               \
            type mixed = (w)[(i + 13) & 15] ^ (w)[(i + 8) & 15] ^ (w)[(i + 2) & 15] ^ (w)[i & 15];                     \
            if (i >= 16) (w)[i & 15] = ROTATED(mixed, 1);                                                              \
            mixed = i < 20   ? (d ^ (*b & (c ^ d))) + 0x5A827999u                                                      \
                    : i < 40 ? (*b ^ c ^ d) + 0x6ED9EBA1u                                                              \
                    : i < 60 ? ((*b & c) | (d & (*b | c))) + 0x8F1BBCDCu                                               \
                             : (*b ^ c ^ d) + 0xCA62C1D6u;                                                             \
            *e += mixed + ROTATED(v[(80 - i) % 5], 5) + (w)[i & 15];                                                   \
            *b = ROTATED(*b, 30);                                                                                      \
        }                                                                                                              \
        for (uint32_t i = 0; i < 5; i++) (s)[i] += v[i];                                                               \
    } while (0)

static void add_blocks_portable(uint32_t *state, const uint8_t *data, uint64_t blocks) {
    for (; blocks > 0; blocks--, data += BLOCK) {
        uint32_t w[16];
        for (uint32_t i = 0; i < 16; i++) w[i] = rp_load32(data + 4 * i);
        ADD_BLOCK(uint32_t, state, w);
    }
}

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
static int is_accelerated, is_wide;
#define SHA_TARGET __attribute__((target("sha,ssse3,sse4.1")))

/* Four rounds: number `g` of 20, with the function of its quarter. `e` is the state before the last four. */
#define FOUR_ROUNDS(g, function)                                                                                       \
    do {                                                                                                               \
        __m128i word;                                                                                                  \
        if ((g) < 4)                                                                                                   \
            word = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(const void *)(data + 16 * ((g) & 3))), swap);    \
        else                                                                                                           \
            word = _mm_sha1msg2_epu32(                                                                                 \
                _mm_xor_si128(_mm_sha1msg1_epu32(w[(g) & 3], w[((g) + 1) & 3]), w[((g) + 2) & 3]), w[((g) + 3) & 3]);  \
        __m128i added = (g) > 0 ? _mm_sha1nexte_epu32(e, word) : _mm_add_epi32(e, word);                               \
        w[(g) & 3] = word;                                                                                             \
        e = abcd;                                                                                                      \
        abcd = _mm_sha1rnds4_epu32(abcd, added, function);                                                             \
    } while (0)
#define QUARTER(g, function)                                                                                           \
    FOUR_ROUNDS((g), function);                                                                                        \
    FOUR_ROUNDS((g) + 1, function);                                                                                    \
    FOUR_ROUNDS((g) + 2, function);                                                                                    \
    FOUR_ROUNDS((g) + 3, function);                                                                                    \
    FOUR_ROUNDS((g) + 4, function)

SHA_TARGET static void add_blocks_by_instructions(uint32_t *state, const uint8_t *data, uint64_t blocks) {
    const __m128i swap = _mm_set_epi64x(0x0001020304050607, 0x08090a0b0c0d0e0f); /* the first word highest */
    __m128i abcd = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)(const void *)state), 0x1B);
    __m128i e = _mm_set_epi32((int)state[4], 0, 0, 0);
    for (; blocks > 0; blocks--, data += BLOCK) {
        __m128i w[4], abcd_before = abcd, e_before = e;
        QUARTER(0, 0);
        QUARTER(5, 1);
        QUARTER(10, 2);
        QUARTER(15, 3);
        e = _mm_sha1nexte_epu32(e, e_before);
        abcd = _mm_add_epi32(abcd, abcd_before);
    }
    _mm_storeu_si128((__m128i *)(void *)state, _mm_shuffle_epi32(abcd, 0x1B));
    state[4] = (uint32_t)_mm_extract_epi32(e, 3);
}

#define WIDE_TARGET __attribute__((target("avx512f,avx512bw")))
typedef uint32_t words __attribute__((vector_size(BLOCK)));

/* One block of each lane: turned, so that each vector has the same word of all messages. */
WIDE_TARGET static void load_words(const uint8_t *const *data, uint64_t at, __m512i *w) {
    const __m512i swap = _mm512_broadcast_i32x4(_mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203));
    const __m512i low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
    __m512i turned[RP_HMAC_JOBS];
    for (int i = 0; i < RP_HMAC_JOBS; i++) w[i] = _mm512_shuffle_epi8(_mm512_loadu_si512(data[i] + at), swap);
    for (int step = 0; step < 4; step++) { /* each interleaves the first half of the vectors with the second */
        for (int i = 0; i < 8; i++) {
            turned[2 * i] = _mm512_permutex2var_epi32(w[i], low, w[i + 8]);
            turned[2 * i + 1] = _mm512_permutex2var_epi32(w[i], high, w[i + 8]);
        }
        memcpy(w, turned, sizeof turned);
    }
}

/* Add `blocks` blocks to each of up to 16 lanes. Vectors with fewer have the first one again, for nothing. */
WIDE_TARGET static void add_blocks_wide(lane *const *lanes, uint32_t count, uint64_t blocks) {
    const uint8_t *data[RP_HMAC_JOBS];
    words s[5], w[16];
    for (uint32_t i = 0; i < RP_HMAC_JOBS; i++) {
        const lane *one = lanes[i < count ? i : 0];
        data[i] = one->data[one->run];
        for (uint32_t k = 0; k < 5; k++) s[k][i] = one->state[k];
    }
    for (uint64_t done = 0; done < blocks; done++) {
        load_words(data, done * BLOCK, (__m512i *)w);
        ADD_BLOCK(words, s, w);
    }
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t k = 0; k < 5; k++) lanes[i]->state[k] = s[k][i];
}

__attribute__((constructor)) static void ask_cpu(void) {
    unsigned a, b = 0, c, d;
    is_accelerated = __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b >> 29 & 1);
    __builtin_cpu_init();
    is_wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw"); /* the kernel saves them too */
}

static void add_blocks(uint32_t *state, const uint8_t *data, uint64_t blocks) {
    (is_accelerated ? add_blocks_by_instructions : add_blocks_portable)(state, data, blocks);
}

void rp_sha1_force_portable(int on) {
    ask_cpu();
    if (on) is_accelerated = is_wide = 0;
}
#else
enum { is_wide = 0 };
#define add_blocks add_blocks_portable
#define add_blocks_wide(lanes, count, blocks) (void)(lanes)

void rp_sha1_force_portable(int on) { (void)on; }
#endif

/* Make a message of `edge` and `body`: whole blocks of the edge, to which the first bytes of the body are appended, the
 * blocks of the body where they are, and its last bytes with padding and the number of bits, again behind the edge.
 * `before`: bytes that are in `state` already. */
static void prepare(lane *lane, const uint32_t *state, uint64_t before, uint8_t *edge, uint64_t edge_size,
                    const uint8_t *body, uint64_t body_size) {
    uint64_t bits = (before + edge_size + body_size) * 8, first = (BLOCK - edge_size % BLOCK) % BLOCK;
    if (first > body_size) first = body_size;
    uint64_t last = (body_size - first) % BLOCK, at = edge_size + first, head = at / BLOCK;
    uint64_t end = (at + last + 1 + sizeof bits + BLOCK - 1) / BLOCK;
    memcpy(edge + edge_size, body, first);
    memcpy(edge + at, body + body_size - last, last);
    memset(edge + at + last, 0, end * BLOCK - (at + last));
    edge[at + last] = 0x80;
    rp_store64(edge + end * BLOCK - sizeof bits, bits);
    memcpy(lane->state, state, sizeof lane->state);
    lane->run = 0;
    memcpy(lane->data, (const uint8_t *[]){edge, body + first, edge + head * BLOCK}, sizeof lane->data);
    memcpy(lane->blocks, (uint64_t[]){head, (body_size - first) / BLOCK, end - head}, sizeof lane->blocks);
}

/* Hash messages to their ends, in steps of as many blocks as the shortest run has. */
static void add_lanes(lane *lanes, uint32_t count) {
    for (;;) {
        lane *live[RP_HMAC_JOBS];
        uint32_t live_count = 0;
        uint64_t blocks = UINT64_MAX;
        for (lane *one = lanes; one < lanes + count; one++) {
            while (one->run < 3 && one->blocks[one->run] == 0) one->run++;
            if (one->run == 3) continue;
            live[live_count++] = one;
            if (one->blocks[one->run] < blocks) blocks = one->blocks[one->run];
        }
        if (live_count == 0) return;
        int together = is_wide && live_count >= LANES_MIN;
        if (together) add_blocks_wide(live, live_count, blocks);
        for (uint32_t i = 0; i < live_count; i++) {
            lane *one = live[i];
            if (!together) add_blocks(one->state, one->data[one->run], blocks);
            one->data[one->run] += blocks * BLOCK;
            one->blocks[one->run] -= blocks;
        }
    }
}

static void put_digest(const lane *lane, uint8_t *digest) {
    for (uint32_t k = 0; k < 5; k++) rp_store32(digest + 4 * k, lane->state[k]);
}

void rp_hmac_key_make(rp_hmac_key *key, const uint8_t *secret, uint64_t size) {
    uint8_t room[RP_HMAC_ROOM], block[BLOCK] = {0};
    if (size > BLOCK) {
        lane lane;
        prepare(&lane, START, 0, room, 0, secret, size);
        add_lanes(&lane, 1);
        put_digest(&lane, block);
    } else {
        memcpy(block, secret, size);
    }
    memcpy(key->inner, START, sizeof key->inner);
    memcpy(key->outer, START, sizeof key->outer);
    for (uint32_t i = 0; i < BLOCK; i++) block[i] ^= 0x36;
    add_blocks(key->inner, block, 1);
    for (uint32_t i = 0; i < BLOCK; i++) block[i] ^= 0x36 ^ 0x5C;
    add_blocks(key->outer, block, 1);
}

void rp_hmac(rp_hmac_job *jobs, uint32_t count) {
    lane lanes[RP_HMAC_JOBS];
    for (uint32_t i = 0; i < count; i++)
        prepare(&lanes[i], jobs[i].key->inner, BLOCK, jobs[i].edge, jobs[i].edge_size, jobs[i].body, jobs[i].body_size);
    add_lanes(lanes, count);
    for (uint32_t i = 0; i < count; i++) {
        put_digest(&lanes[i], jobs[i].code);
        prepare(&lanes[i], jobs[i].key->outer, BLOCK, jobs[i].edge, 0, jobs[i].code, RP_SHA1_SIZE);
    }
    add_lanes(lanes, count);
    for (uint32_t i = 0; i < count; i++) put_digest(&lanes[i], jobs[i].code);
}

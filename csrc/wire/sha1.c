/* One block function, two ways: the x86 SHA instructions (1 KiB in 0.6 us), and plain C for all other CPUs. The CPU is
 * asked when the library is loaded. */
#include "wire/sha1.h"

#include <string.h>

#include "base/endian.h"

enum { BLOCK = 64 };
static const uint32_t START[5] = {0x67452301u, 0xEFCDAB89u, 0x98BADCFEu, 0x10325476u, 0xC3D2E1F0u};

static uint32_t rotate(uint32_t value, int bits) { return value << bits | value >> (32 - bits); }

static void add_blocks_portable(uint32_t *state, const uint8_t *data, uint64_t blocks) {
    for (; blocks > 0; blocks--, data += BLOCK) {
        uint32_t w[16], a = state[0], b = state[1], c = state[2], d = state[3], e = state[4];
        for (uint32_t i = 0; i < 80; i++) {
            uint32_t word = i < 16 ? rp_load32(data + 4 * i)
                                   : rotate(w[(i + 13) & 15] ^ w[(i + 8) & 15] ^ w[(i + 2) & 15] ^ w[i & 15], 1);
            uint32_t mixed = i < 20   ? ((b & c) | (~b & d)) + 0x5A827999u
                             : i < 40 ? (b ^ c ^ d) + 0x6ED9EBA1u
                             : i < 60 ? ((b & c) | (b & d) | (c & d)) + 0x8F1BBCDCu
                                      : (b ^ c ^ d) + 0xCA62C1D6u;
            uint32_t next = rotate(a, 5) + mixed + e + word;
            w[i & 15] = word;
            e = d;
            d = c;
            c = rotate(b, 30);
            b = a;
            a = next;
        }
        state[0] += a;
        state[1] += b;
        state[2] += c;
        state[3] += d;
        state[4] += e;
    }
}

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
static int is_accelerated;
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

__attribute__((constructor)) static void ask_cpu(void) {
    unsigned a, b = 0, c, d;
    is_accelerated = __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b >> 29 & 1);
}

static void add_blocks(uint32_t *state, const uint8_t *data, uint64_t blocks) {
    (is_accelerated ? add_blocks_by_instructions : add_blocks_portable)(state, data, blocks);
}

void rp_sha1_force_portable(int on) {
    ask_cpu();
    if (on) is_accelerated = 0;
}
#else
static void add_blocks(uint32_t *state, const uint8_t *data, uint64_t blocks) {
    add_blocks_portable(state, data, blocks);
}

void rp_sha1_force_portable(int on) { (void)on; }
#endif

void rp_sha1_update(rp_sha1 *sum, const uint8_t *data, uint64_t size) {
    sum->size += size;
    if (sum->used > 0) {
        uint64_t taken = size < BLOCK - sum->used ? size : BLOCK - sum->used;
        memcpy(sum->block + sum->used, data, taken);
        sum->used += (uint32_t)taken;
        data += taken;
        size -= taken;
        if (sum->used < BLOCK) return;
        add_blocks(sum->state, sum->block, 1);
    }
    add_blocks(sum->state, data, size / BLOCK);
    sum->used = (uint32_t)(size % BLOCK);
    if (sum->used > 0) memcpy(sum->block, data + size - sum->used, sum->used);
}

/* The padding and the number of bits; `digest` has 20 bytes. */
static void end(rp_sha1 *sum, uint8_t *digest) {
    uint64_t bits = sum->size * 8;
    sum->block[sum->used++] = 0x80;
    memset(sum->block + sum->used, 0, BLOCK - sum->used);
    if (sum->used > BLOCK - 8) {
        add_blocks(sum->state, sum->block, 1);
        memset(sum->block, 0, BLOCK);
    }
    rp_store64(sum->block + BLOCK - 8, bits);
    add_blocks(sum->state, sum->block, 1);
    for (uint32_t i = 0; i < 5; i++) rp_store32(digest + 4 * i, sum->state[i]);
}

static void begin(rp_sha1 *sum, const uint32_t *state, uint64_t size) {
    memcpy(sum->state, state, sizeof sum->state);
    sum->used = 0;
    sum->size = size;
}

void rp_hmac_key_make(rp_hmac_key *key, const uint8_t *secret, uint64_t size) {
    uint8_t block[BLOCK] = {0};
    rp_sha1 sum;
    if (size > BLOCK) {
        begin(&sum, START, 0);
        rp_sha1_update(&sum, secret, size);
        end(&sum, block);
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

void rp_hmac_begin(rp_sha1 *sum, const rp_hmac_key *key) { begin(sum, key->inner, BLOCK); }

void rp_hmac_end(rp_sha1 *sum, const rp_hmac_key *key, uint8_t *code) {
    uint8_t digest[RP_SHA1_SIZE];
    end(sum, digest);
    begin(sum, key->outer, BLOCK);
    rp_sha1_update(sum, digest, sizeof digest);
    end(sum, code);
}

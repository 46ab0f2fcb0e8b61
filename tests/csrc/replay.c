/* Runs a fuzzer's function over files instead of under libFuzzer, so that `make sanitize` needs no clang: each file as
 * it is, then with seeded mutations (the fuzzer's own, where it has some). Prints how many inputs that were.
 *
 * replay MUTATIONS FILE... */
#include "check.h"

enum { INPUT_MAX = 20480, STEPS = 8 /* mutations on top of each other */ };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed) __attribute__((weak));

static random_source source = {0x5DEECE66Dull};

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size) {
    static uint8_t room[2 * INPUT_MAX + 8];
    uint32_t changed = (uint32_t)(size < INPUT_MAX ? size : INPUT_MAX);
    memcpy(room, data, changed);
    mutate(&source, room, &changed);
    if (changed > max_size) changed = (uint32_t)max_size;
    memcpy(data, room, changed);
    return changed;
}

static void run(const uint8_t *data, size_t size) {
    uint8_t *copy = exact_copy(data, size);
    CHECK(LLVMFuzzerTestOneInput(copy, size) == 0);
    free(copy);
}

int main(int argc, char **argv) {
    static uint8_t input[INPUT_MAX], changed[INPUT_MAX];
    unsigned mutations = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 0;
    CHECK(argc > 2);
    for (int i = 2; i < argc; i++) {
        FILE *file = fopen(argv[i], "rb");
        CHECK(file != NULL);
        size_t size = fread(input, 1, sizeof input, file);
        fclose(file);
        run(input, size);
        size_t now = size;
        for (unsigned n = 0; n < mutations; n++) {
            if (n % STEPS == 0) memcpy(changed, input, now = size);
            now = LLVMFuzzerCustomMutator ? LLVMFuzzerCustomMutator(changed, now, INPUT_MAX, n)
                                          : LLVMFuzzerMutate(changed, now, INPUT_MAX);
            run(changed, now);
        }
    }
    printf("%d files, %u mutations of each: ok\n", argc - 2, mutations);
    return 0;
}

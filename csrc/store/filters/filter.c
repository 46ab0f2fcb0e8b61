/* See filter.h. A stack machine; the format of its programs is in rocketpy/filter/program.py.
 *
 * Each evaluation first finds the values of all properties that the program names, in one pass over the message's
 * properties. Every instruction checks that its operands are there: a program that is not sound ends in a fault and
 * touches nothing outside of it. */
#include "store/filters/filter.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/endian.h"
#include "base/numbers.h"
#include "store/log/record.h"

enum { VERSION = 1, HEAD_SIZE = 4, NAMES_MAX = 64, STACK_MAX = 64 };
enum { NUMBER_SIZE_MAX = 255, DIGIT_WORK = 4 }; /* bytes of a text that may be a number; work of reading one of them */
enum {
    OP_UNKNOWN = 1,
    OP_TRUE,
    OP_FALSE,
    OP_INT32,
    OP_INT64,
    OP_DOUBLE,
    OP_STRING,
    OP_PROPERTY,
    OP_NEGATE,
    OP_NOT,
    OP_EQUAL,
    OP_GREATER,
    OP_GREATER_EQUAL,
    OP_LESS,
    OP_LESS_EQUAL,
    OP_IS_NULL,
    OP_IN,
    OP_AND,
    OP_OR,
    OP_SKIP_IF_FALSE,
    OP_SKIP_IF_TRUE
};

typedef enum kind { UNKNOWN, BOOLEAN, INT32, INT64, DOUBLE, STRING } kind;

struct text {
    const uint8_t *data;
    uint32_t size;
};

struct value {
    kind kind;
    union {
        int64_t whole; /* BOOLEAN, INT32, INT64 */
        double floating;
        struct text text;
    };
};

struct rp_filter {
    uint32_t holders;
    uint32_t name_count;
    struct text names[NAMES_MAX];
    const uint8_t *code, *end;
    uint8_t program[];
};

/* ---- programs ---- */

/* Read a text with its size in front; 0 if it is not there whole. */
static int take_text(const uint8_t **at, const uint8_t *end, struct text *text) {
    if (end - *at < 2) return 0;
    text->size = rp_load16(*at);
    text->data = *at + 2;
    if ((uint64_t)(end - text->data) < text->size) return 0;
    *at = text->data + text->size;
    return 1;
}

static int read_program(rp_filter *filter, uint32_t size) {
    const uint8_t *at = filter->program + HEAD_SIZE;
    filter->end = filter->program + size;
    if (size < HEAD_SIZE || filter->program[0] != VERSION || filter->program[1] > NAMES_MAX) return 0;
    filter->name_count = filter->program[1];
    for (uint32_t i = 0; i < filter->name_count; i++)
        if (!take_text(&at, filter->end, &filter->names[i]) || !filter->names[i].size) return 0;
    filter->code = at;
    return (uint64_t)(filter->end - at) == rp_load16(filter->program + 2);
}

rp_filter *rp_filter_open(const uint8_t *program, uint32_t size) {
    rp_filter *filter = malloc(sizeof *filter + size);
    if (!filter) return NULL;
    memcpy(filter->program, program, size);
    filter->holders = 1;
    if (read_program(filter, size)) return filter;
    free(filter);
    errno = EINVAL;
    return NULL;
}

uint32_t rp_filter_size(const rp_filter *filter) {
    return (uint32_t)(sizeof *filter + (uint64_t)(filter->end - filter->program));
}

rp_filter *rp_filter_hold(rp_filter *filter) {
    if (filter) filter->holders++;
    return filter;
}

void rp_filter_release(rp_filter *filter) {
    if (filter && --filter->holders == 0) free(filter);
}

/* ---- values ---- */

static void find_values(const rp_filter *filter, const uint8_t *at, uint32_t size, struct text *values,
                        uint64_t *work) {
    const uint8_t *end = size ? at + size : at;
    memset(values, 0, filter->name_count * sizeof *values);
    *work += size;
    while (at < end) {
        const uint8_t *next = memchr(at, RP_PROPERTY_SEPARATOR, (size_t)(end - at));
        if (!next) next = end;
        const uint8_t *equals = memchr(at, RP_NAME_VALUE_SEPARATOR, (size_t)(next - at));
        uint32_t name_size = equals ? (uint32_t)(equals - at) : 0;
        if (name_size && equals + 1 < next) {
            *work += filter->name_count;
            for (uint32_t i = 0; i < filter->name_count; i++)
                if (filter->names[i].size == name_size && memcmp(filter->names[i].data, at, name_size) == 0)
                    values[i] = (struct text){equals + 1, (uint32_t)(next - equals - 1)};
        }
        at = next + 1;
    }
}

static rp_filter_result truth(const struct value *value) {
    if (value->kind == UNKNOWN) return RP_FILTER_UNKNOWN;
    return value->kind == BOOLEAN && value->whole ? RP_FILTER_TRUE : RP_FILTER_FALSE;
}

static struct value of_truth(rp_filter_result result) {
    if (result == RP_FILTER_UNKNOWN) return (struct value){.kind = UNKNOWN};
    return (struct value){.kind = BOOLEAN, .whole = result == RP_FILTER_TRUE};
}

static int same_text(const struct text *left, const struct text *right) {
    return left->size == right->size && memcmp(left->data, right->data, left->size) == 0;
}

static int is_true_text(const struct text *text) {
    static const char word[] = "true";
    if (text->size != 4) return 0;
    for (int i = 0; i < 4; i++)
        if ((text->data[i] | 0x20) != word[i]) return 0;
    return 1;
}

/* Make a number of `kind` of the value, which is a text or a number of a smaller kind. 0: the text is none. */
static int convert(struct value *value, kind wanted, uint64_t *work) {
    struct text text = value->text;
    if (value->kind == wanted) return 1;
    if (value->kind == STRING && wanted != BOOLEAN) {
        if (text.size > NUMBER_SIZE_MAX) return 0;
        *work += (uint64_t)text.size * DIGIT_WORK;
    }
    if (value->kind != STRING) {
        if (wanted == DOUBLE) value->floating = (double)value->whole;
    } else if (wanted == BOOLEAN) {
        value->whole = is_true_text(&text);
    } else if (wanted == DOUBLE) {
        if (rp_parse_double(text.data, text.size, &value->floating) != RP_OK) return 0;
    } else if (wanted == INT64) {
        if (rp_parse_int64(text.data, text.size, &value->whole) != RP_OK) return 0;
    } else {
        int32_t number;
        if (rp_parse_int32(text.data, text.size, &number) != RP_OK) return 0;
        value->whole = number;
    }
    value->kind = wanted;
    return 1;
}

/* NaN is greater than all others and equal to itself, -0.0 is less than 0.0. */
static int rank_of(double value) { return isnan(value) ? 2 : signbit(value) ? 0 : 1; }

static int order_of(const struct value *left, const struct value *right) {
    if (left->kind != DOUBLE) return (left->whole > right->whole) - (left->whole < right->whole);
    if (left->floating < right->floating) return -1;
    if (left->floating > right->floating) return 1;
    return rank_of(left->floating) - rank_of(right->floating);
}

/* Convert both to one kind; *order is set to <0, 0, >0. RP_FILTER_TRUE; RP_FILTER_FALSE: they can never be equal;
 * RP_FILTER_FAULT. Neither is unknown, and not both are texts. */
static rp_filter_result compare(struct value *left, struct value *right, int *order, uint64_t *work) {
    if (left->kind == BOOLEAN && right->kind == STRING) return RP_FILTER_FAULT;
    kind wanted = left->kind == STRING       ? right->kind
                  : right->kind == STRING    ? left->kind
                  : left->kind > right->kind ? left->kind
                                             : right->kind;
    if (wanted != BOOLEAN && (left->kind == BOOLEAN || right->kind == BOOLEAN)) return RP_FILTER_FALSE;
    if (!convert(left, wanted, work) || !convert(right, wanted, work)) return RP_FILTER_FAULT;
    *order = order_of(left, right);
    return RP_FILTER_TRUE;
}

static rp_filter_result equal(struct value *left, struct value *right, uint64_t *work) {
    int order = 0;
    if (left->kind == UNKNOWN) return right->kind == UNKNOWN ? RP_FILTER_TRUE : RP_FILTER_UNKNOWN;
    if (right->kind == UNKNOWN) return RP_FILTER_FALSE;
    if (left->kind == STRING && right->kind == STRING) {
        *work += left->text.size;
        return same_text(&left->text, &right->text) ? RP_FILTER_TRUE : RP_FILTER_FALSE;
    }
    rp_filter_result result = compare(left, right, &order, work);
    return result == RP_FILTER_TRUE && order ? RP_FILTER_FALSE : result;
}

static rp_filter_result ordered(uint8_t op, struct value *left, struct value *right, uint64_t *work) {
    int order = 0;
    if (left->kind == UNKNOWN || right->kind == UNKNOWN) return RP_FILTER_UNKNOWN;
    if (left->kind == STRING && right->kind == STRING &&
        (!convert(left, DOUBLE, work) || !convert(right, DOUBLE, work)))
        return RP_FILTER_FAULT;
    rp_filter_result result = compare(left, right, &order, work);
    if (result != RP_FILTER_TRUE) return result;
    int holds = op == OP_GREATER         ? order > 0
                : op == OP_GREATER_EQUAL ? order >= 0
                : op == OP_LESS          ? order < 0
                                         : order <= 0;
    return holds ? RP_FILTER_TRUE : RP_FILTER_FALSE;
}

static rp_filter_result both(rp_filter_result left, rp_filter_result right) {
    if (left == RP_FILTER_FALSE || right == RP_FILTER_FALSE) return RP_FILTER_FALSE;
    return left == RP_FILTER_UNKNOWN || right == RP_FILTER_UNKNOWN ? RP_FILTER_UNKNOWN : RP_FILTER_TRUE;
}

static rp_filter_result either(rp_filter_result left, rp_filter_result right) {
    if (left == RP_FILTER_TRUE || right == RP_FILTER_TRUE) return RP_FILTER_TRUE;
    return left == RP_FILTER_UNKNOWN || right == RP_FILTER_UNKNOWN ? RP_FILTER_UNKNOWN : RP_FILTER_FALSE;
}

static rp_filter_result opposite(rp_filter_result result) {
    return result == RP_FILTER_TRUE ? RP_FILTER_FALSE : result == RP_FILTER_FALSE ? RP_FILTER_TRUE : result;
}

/* ---- the machine ---- */

struct machine {
    const rp_filter *filter;
    const uint8_t *at;
    uint32_t count; /* values on the stack */
    uint64_t *work;
    struct value stack[STACK_MAX];
    struct text values[NAMES_MAX];
};

/* Push what the instruction names. 0: the program is not sound. */
static int push(struct machine *machine, uint8_t op) {
    struct value *top = &machine->stack[machine->count];
    uint64_t left = (uint64_t)(machine->filter->end - machine->at);
    if (machine->count++ == STACK_MAX) return 0;
    switch (op) {
        case OP_UNKNOWN: *top = (struct value){.kind = UNKNOWN}; return 1;
        case OP_TRUE:
        case OP_FALSE: *top = (struct value){.kind = BOOLEAN, .whole = op == OP_TRUE}; return 1;
        case OP_STRING: top->kind = STRING; return take_text(&machine->at, machine->filter->end, &top->text);
        case OP_PROPERTY: {
            if (!left || *machine->at >= machine->filter->name_count) return 0;
            const struct text *value = &machine->values[*machine->at++];
            *top = value->data ? (struct value){.kind = STRING, .text = *value} : (struct value){.kind = UNKNOWN};
            return 1;
        }
        default: break;
    }
    if (left < 8) return 0;
    uint64_t bits = rp_load64(machine->at);
    machine->at += 8;
    *top = (struct value){.kind = op == OP_INT32 ? INT32 : op == OP_INT64 ? INT64 : DOUBLE, .whole = (int64_t)bits};
    if (op == OP_DOUBLE) memcpy(&top->floating, &bits, sizeof bits);
    return 1;
}

static void negate(struct value *value) {
    if (value->kind == DOUBLE)
        value->floating = -value->floating;
    else if (value->kind == INT32 || value->kind == INT64)
        value->whole = (int64_t)(0 - (uint64_t)value->whole);
    else
        value->kind = UNKNOWN;
}

/* 1 if the value on top is one of the texts that follow; all are skipped. */
static rp_filter_result find_in(struct machine *machine, const struct value *top) {
    const uint8_t *end = machine->filter->end;
    if (end - machine->at < 3) return RP_FILTER_FAULT;
    int is_negated = machine->at[0] != 0, is_found = 0;
    uint32_t count = rp_load16(machine->at + 1);
    machine->at += 3;
    for (struct text text; count; count--) {
        if (!take_text(&machine->at, end, &text)) return RP_FILTER_FAULT;
        if (top->kind == STRING && same_text(&text, &top->text)) is_found = 1;
        *machine->work += 2 + text.size / 8;
    }
    if (top->kind != STRING) return top->kind == UNKNOWN ? RP_FILTER_UNKNOWN : RP_FILTER_FAULT;
    return is_found != is_negated ? RP_FILTER_TRUE : RP_FILTER_FALSE;
}

/* An instruction that replaces the value on top. RP_FILTER_FAULT ends the evaluation. */
static rp_filter_result change_top(struct machine *machine, uint8_t op) {
    struct value *top = &machine->stack[machine->count - 1];
    rp_filter_result result = truth(top);
    switch (op) {
        case OP_NEGATE: negate(top); return RP_FILTER_TRUE;
        case OP_NOT: *top = of_truth(opposite(result)); return RP_FILTER_TRUE;
        case OP_IS_NULL:
            *top = of_truth(top->kind == UNKNOWN ? RP_FILTER_TRUE : RP_FILTER_FALSE);
            return RP_FILTER_TRUE;
        case OP_IN:
            result = find_in(machine, top);
            if (result != RP_FILTER_FAULT) *top = of_truth(result);
            return result;
        default: break;
    }
    if (machine->filter->end - machine->at < 2) return RP_FILTER_FAULT;
    uint32_t distance = rp_load16(machine->at);
    machine->at += 2;
    if (result != (op == OP_SKIP_IF_TRUE ? RP_FILTER_TRUE : RP_FILTER_FALSE)) return RP_FILTER_TRUE;
    if ((uint64_t)(machine->filter->end - machine->at) < distance) return RP_FILTER_FAULT;
    machine->at += distance;
    *top = of_truth(result);
    return RP_FILTER_TRUE;
}

/* An instruction that makes one value of the two on top. */
static rp_filter_result combine(struct machine *machine, uint8_t op) {
    struct value *right = &machine->stack[--machine->count], *left = right - 1;
    rp_filter_result result = op == OP_EQUAL ? equal(left, right, machine->work)
                              : op == OP_AND ? both(truth(left), truth(right))
                              : op == OP_OR  ? either(truth(left), truth(right))
                                             : ordered(op, left, right, machine->work);
    if (result != RP_FILTER_FAULT) *left = of_truth(result);
    return result;
}

static int is_sound(const struct machine *machine, uint8_t op) {
    uint32_t operands = op <= OP_PROPERTY                                                        ? 0
                        : (op >= OP_EQUAL && op <= OP_LESS_EQUAL) || op == OP_AND || op == OP_OR ? 2
                                                                                                 : 1;
    return op >= OP_UNKNOWN && op <= OP_SKIP_IF_TRUE && machine->count >= operands;
}

rp_filter_result rp_filter_evaluate(const rp_filter *filter, const uint8_t *properties, uint32_t size, uint64_t *work) {
    struct machine machine;
    machine.filter = filter;
    machine.at = filter->code;
    machine.count = 0;
    machine.work = work;
    find_values(filter, properties, size, machine.values, work);
    while (machine.at < filter->end) {
        uint8_t op = *machine.at++;
        *work += 4;
        if (!is_sound(&machine, op)) return RP_FILTER_FAULT;
        if (op <= OP_PROPERTY) {
            if (!push(&machine, op)) return RP_FILTER_FAULT;
        } else if ((op >= OP_EQUAL && op <= OP_LESS_EQUAL) || op == OP_AND || op == OP_OR) {
            if (combine(&machine, op) == RP_FILTER_FAULT) return RP_FILTER_FAULT;
        } else if (change_top(&machine, op) == RP_FILTER_FAULT) {
            return RP_FILTER_FAULT;
        }
    }
    return machine.count == 1 ? truth(&machine.stack[0]) : RP_FILTER_FAULT;
}

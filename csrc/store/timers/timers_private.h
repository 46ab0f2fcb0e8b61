#ifndef ROCKETPY_TIMERS_PRIVATE_H
#define ROCKETPY_TIMERS_PRIVATE_H
/* The state of the timer thread, which its files share. timers.c calls timers_given.c, never
 * the other way round. C only; one thread. */
#include <pthread.h>
#include "base/map.h"
#include "store/log/log_view.h"
#include "store/queues/consume_queue.h"
#include "store/queues/unit.h"
#include "store/timers/timer_heap.h"
#include "store/timers/timer_index.h"
#include "store/timers/timers.h"

enum {
    RP_TIMERS_GIVEN_MAX = RP_TIMER_REFUSED_MAX, /* in the ring and refused, together; a power of two */
    RP_TIMERS_UNITS_PER_STEP = 2048
};

enum { RP_RENEWAL_NONE, RP_RENEWAL_MEASURES, RP_RENEWAL_GIVES };

/* The renewal of pending timers below a position in the log, or below a number. */
typedef struct rp_timer_renewal {
    int phase;         /* RP_RENEWAL_NONE, ... */
    uint64_t requests; /* of header->renew_requests, taken notice of */
    uint64_t to;       /* timers below this position in the log are meant; UINT64_MAX: those below a number */
    uint64_t until;    /* timers below this number are meant; UINT64_MAX: those below a position */
    uint64_t next;     /* number to look at next */
    uint64_t bytes;    /* of their records, as far as measured */
    uint64_t count;    /* of them */
    int64_t tried_boot_ms; /* when the numbers were too many last */
} rp_timer_renewal;

struct rp_timers {
    rp_timers_config config;
    rp_control *control;
    rp_timer_header *header;
    char *strings[3];
    rp_timer_index index;
    rp_number_set under_way;
    rp_timer *journaled; /* of RP_TIMER_JOURNAL_MAX */
    rp_timer *given;     /* of RP_TIMERS_GIVEN_MAX: [given_begin, given_end) are in the ring */
    uint64_t given_begin;
    uint64_t given_end;
    rp_timer_refused refused;
    rp_timer_renewal renewal;
    uint64_t seen;       /* entries of the journal that were taken notice of */
    uint64_t next;       /* number to follow the queue from */
    const rp_queue *queue;
    rp_ring_writer *ring;
    rp_cq_reader *units;
    rp_log_view *records;  /* touched before they are given away */
    uint64_t touched_from; /* the last ones: this part of the log */
    uint64_t touched_to;
    uint64_t opened_phy_offset; /* end of the log at the start */
    uint64_t oldest_phy_offset; /* 1 + place in the log of the oldest pending timer; 0: none */
    int is_loaded;
    int64_t now_ms;      /* of the broker's clock */
    int64_t active_boot_ms;
    int64_t kept_boot_ms; /* last housekeeping */
    uint64_t looked_phy_offset; /* of the log, dispatched when it looked last */
    int is_log_quiet; /* nothing was dispatched between the last two looks */
    uint64_t synced_run; /* of rp_timers_sync: runs below this name are on the disk */
    uint64_t filed_phy_offset; /* records of filed timers are below this position */
    uint32_t stop;
    int rests;            /* it waits for rp_timers_wake */
    pthread_mutex_t lock; /* over `stop` and `rests`, for waiting */
    pthread_cond_t wake;
};

/* The timer with this number, from its unit in the timer queue, whose tags code is the time. */
static inline rp_timer rp_timer_of_unit(const uint8_t *bytes, uint64_t number) {
    rp_unit unit = rp_unit_read(bytes);
    return (rp_timer){.due_ms = unit.tags_code, .number = number, .phy_offset = unit.phy_offset, .size = unit.size};
}

/* timers_given.c */
/* The unit of a timer. RP_OK; RP_NOT_FOUND: only the number is set; RP_IO_ERROR with errno. */
rp_status rp_timers_read_unit(const rp_timers *timers, uint64_t number, rp_timer *timer);
/* Take notice of what has ended, set the bits of what lasts; adds to *done. RP_OK; RP_IO_ERROR with errno. */
rp_status rp_timers_look_back(rp_timers *timers, uint64_t *done);
/* 1 if `reserve` entries of the journal stay free of timers that are given away or have not their bits yet. */
int rp_timers_has_room(const rp_timers *timers, uint64_t reserve);
/* Number of timers that are in the ring or refused. */
uint64_t rp_timers_given_count(const rp_timers *timers);
/* Give one timer to the send worker. RP_OK; RP_FULL: no room in the ring. The reader is not woken. */
rp_status rp_timers_give(rp_timers *timers, const rp_timer *timer);
/* Everything that is given away or refused, and was not ended. NULL: no memory. The caller frees it. */
rp_timer *rp_timers_copy_under_way(const rp_timers *timers, uint32_t *count);

#endif

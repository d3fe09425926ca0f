/* delta: the manager as functions of C, over the library delta::engine. delta/any_manager.hpp is
 * the same for C++17, with owning handles; use this one from other languages.
 *
 *   delta_options o = {0};
 *   o.policy = "adaptive";
 *   o.budget = 512000000;
 *   o.host_budget = 2000000000;
 *   delta_error error;
 *   delta_manager* m = delta_create(&o, &error);
 *   if (m == NULL) puts(error.what);
 *
 * Sizes and budgets are bytes, times nanoseconds. A manager is used by one thread at a time. No
 * exception leaves a function: what went wrong is a delta_status, and delta_last_error tells more.
 * What a function means, what it costs and when it fails is said in delta/manager.hpp, at the
 * member of that name. A kernel must not call the manager, but for delta_drop, delta_share and
 * delta_give_back. After a failure the manager can be used on, but for
 * DELTA_POISONED, DELTA_FAILED and, from within an operator, DELTA_OUT_OF_MEMORY. NULL where
 * something is needed (a manager, a list with a count, a place for a result, a kernel's `run`),
 * and bits of traits or pins that have no name, are DELTA_MISUSE, and where there is no status, 0,
 * NULL or nothing done. How to build and link: docs/c.md. Until version 1
 * structures may change: compile bindings with the header of the library. */
#ifndef DELTA_ENGINE_C_INTERFACE_H
#define DELTA_ENGINE_C_INTERFACE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
/* C has no scopes. NOLINTBEGIN(readability-identifier-naming) */

typedef struct delta_manager delta_manager;
/* A managed tensor. Its number is used again after its last drop: one that is kept too long may
 * name another tensor. */
typedef uint32_t delta_tensor;
/* Names none: what a tensor that is yet to be made may hold. */
#define DELTA_NO_TENSOR UINT32_MAX
/* What a kernel sees of its operator; valid while the kernel runs. */
typedef struct delta_call delta_call;

typedef enum delta_status {
  DELTA_OK = 0,
  DELTA_BUDGET_EXCEEDED = 1, /* no room for an operator, even with everything else released */
  DELTA_THRASH = 2,          /* recomputing did not bring an operator's inputs together */
  DELTA_UNKNOWN_TENSOR = 3,  /* dropped, or never created */
  DELTA_MISUSE = 4,          /* a call that the interface forbids */
  DELTA_POISONED = 5,        /* an earlier failure left the manager unusable: destroy it */
  DELTA_KERNEL_FAILED = 6,   /* a kernel said so; the operator has no outputs */
  DELTA_OUT_OF_MEMORY = 7,   /* of the host's heap, or the device refused its memory */
  DELTA_UNKNOWN_POLICY = 8,  /* delta_create: no policy of that name */
  DELTA_BAD_OPTION = 9, /* delta_create: an option that makes no sense, a file not to be opened */
  DELTA_REPLAY_DIFFERS = 10, /* check_replays: an operator does not give the same bits again */
  DELTA_FAILED = 11          /* anything else that a device threw */
} delta_status;

/* Why the last function failed. The numbers are set for DELTA_BUDGET_EXCEEDED and DELTA_THRASH. */
typedef struct delta_error {
  delta_status status;
  char what[1536];          /* one line */
  uint64_t requested;       /* what the operator still needed */
  uint64_t budget;          /* the budget */
  uint64_t used;            /* taken of it when it failed */
  uint64_t largest_hole;    /* the most that was free in one piece */
  uint64_t immovable;       /* of what is used, what could not leave */
  uint64_t host_budget;     /* the host's */
  uint64_t host_used;       /* taken of it */
  uint64_t smallest_budget; /* a budget that would do; 0: none is known */
  uint64_t foreign;         /* of what is used, blocks that the program itself has taken */
} delta_error;

/* A machine: two memories and three serial lanes (compute, copies out, copies in), as
 * delta/storage/device.hpp says it. `self` is handed to each. A point counts the work of one lane
 * (0 compute, 1 copies out, 2 copies in), rising from 1; `after` has one point per lane, 0 where
 * there is nothing to wait for, and is valid during the call. The device owns both memories. Times
 * are nanoseconds. Only the memories can be refused: a device whose other functions may fail is
 * better written as a Device in C++, which throws. */
typedef struct delta_device {
  void* self;
  void* (*device_memory)(void* self, uint64_t size); /* both: once, aligned to the granularity; */
  void* (*host_memory)(void* self, uint64_t size);   /* NULL: there is not so much */
  /* 0 out to the host, 1 in to the device; gives its point on that lane */
  uint64_t (*copy)(void* self, int direction, void* to, const void* from, uint64_t size,
                   const uint64_t after[3]);
  void (*begin)(void* self, const uint64_t after[3]);
  void (*move)(void* self, void* to, const void* from, uint64_t size); /* as memmove, on compute */
  uint64_t (*end)(void* self);
  int (*reached)(void* self, int lane, uint64_t point);
  void (*wait)(void* self, int lane, uint64_t point);
  /* -1: not known (yet). Where it is never known, give cost_ns, or costs are guessed. */
  int64_t (*elapsed)(void* self, int lane, uint64_t point);
  int64_t (*now)(void* self);
  int64_t (*waited)(void* self);                 /* may be NULL: nobody asks */
  double (*rate)(void* self, int direction);     /* bytes per second */
  int64_t (*latency)(void* self, int direction); /* may be NULL: none */
  int64_t (*backlog)(void* self, int direction); /* may be NULL: none */
  void* (*native_stream)(void* self);            /* may be NULL: there is none */
  double (*move_rate)(void* self); /* bytes per second within the device; may be NULL: 8e9 */
} delta_device;

/* How a manager is made. All zero but for the budget is a choice that works. */
typedef struct delta_options {
  const char* policy;   /* a name of delta/policy_names.hpp; NULL: "adaptive" */
  uint64_t budget;      /* bytes of device memory, all of it counted; taken at once */
  uint64_t host_budget; /* bytes of host memory for what is offloaded; taken at once */
  uint64_t granularity; /* sizes and addresses are multiples of it; a power of two; 0: 64 */
  int keep_addresses;   /* not 0: blocks never move. For who keeps addresses between operators */
  int check_replays; /* not 0: as replay_check in delta/observer.hpp says; a test of the kernels */
  /* NULL: the host's own memory. Copied; what `self` points to outlives the manager. */
  const delta_device* device;
  /* NULL or "": nobody; "timeline:FILE": a timeline for ui.perfetto.dev, complete once the manager
   * is destroyed. */
  const char* observer;
  /* Gets a line of text, without its end, when the manager has something to warn of; each warning
   * comes once. NULL: it is written to stderr. It must not call the manager. */
  void (*warn)(void* warn_self, const char* line);
  void* warn_self;
  /* NULL: nobody. Else called with `owner` when a tensor's bytes are at `data` from now on, or on
   * their way there, and with NULL when they go: also while the manager is destroyed. The address
   * holds until then with keep_addresses, and else until something is allocated. It may call what a
   * kernel may call. */
  void (*on_owner_changed)(void* owner, delta_tensor t, void* data);
  void* owner;
} delta_options;

/* NULL where it fails; `error`, if not NULL, says why. */
delta_manager* delta_create(const delta_options* options, delta_error* error);
/* Views and an open operator are let go first. NULL is allowed. */
void delta_destroy(delta_manager* m);
/* Of the last function of this manager that failed; valid until the next one fails. Of NULL: that
 * it is. */
const delta_error* delta_last_error(const delta_manager* m);
/* The names of all policies, in order; NULL from `i` == their number on. */
const char* delta_policy_name(size_t i);

/* --- tensors ---------------------------------------------------------------------------------- */

/* `label` may be NULL; it is copied. */
delta_status delta_constant(delta_manager* m, uint64_t size, const char* label, delta_tensor* made);
delta_status delta_variable(delta_manager* m, uint64_t size, const char* label, delta_tensor* made);
delta_status delta_share(delta_manager* m, delta_tensor t);
delta_status delta_drop(delta_manager* m, delta_tensor t);
typedef enum delta_pin { DELTA_PIN_EVICT = 1, DELTA_PIN_OFFLOAD = 2, DELTA_PIN_BOTH = 3 } delta_pin;
/* `ways`: of delta_pin, combined with |. */
delta_status delta_forbid(delta_manager* m, delta_tensor t, unsigned ways);

/* Its size, as it was asked for. */
delta_status delta_size(delta_manager* m, delta_tensor t, uint64_t* size);
/* Not 0 where it can be made again: then it can be used after an operator has replaced it. */
int delta_recomputable(const delta_manager* m, delta_tensor t);

/* Bytes of the program's own, which count in the budget and stay where they are, until they become
 * a tensor or are given back: once, and not after the manager. */
typedef struct delta_block {
  uint32_t block; /* names it */
  void* data;
  uint64_t size;
} delta_block;
delta_status delta_take_block(delta_manager* m, uint64_t size, delta_block* taken);
void delta_give_back(delta_manager* m, delta_block b);
/* Where these fail the block is the caller's still. */
delta_status delta_constant_of(delta_manager* m, delta_block b, const char* label,
                               delta_tensor* made);
delta_status delta_variable_of(delta_manager* m, delta_block b, const char* label,
                               delta_tensor* made);

/* A tensor's bytes, held where they are until delta_release. */
typedef struct delta_view {
  size_t slot; /* names the view */
  void* data;
  uint64_t size;
} delta_view;
/* `writes` not 0: to write it. */
delta_status delta_acquire(delta_manager* m, delta_tensor t, int writes, delta_view* view);
/* Once for each view. */
void delta_release(delta_manager* m, size_t slot);

/* --- operators -------------------------------------------------------------------------------- */

void* delta_call_in(const delta_call* c, size_t i);
void* delta_call_out(const delta_call* c, size_t i);
void* delta_call_update(const delta_call* c, size_t i);    /* NULL in a replay of effect_once */
void* delta_call_workspace(const delta_call* c, size_t i); /* NULL where there are fewer */
void* delta_call_stream(const delta_call* c);
uint64_t delta_call_sequence(const delta_call* c); /* seeds random generators */
int delta_call_replaying(const delta_call* c);

/* A kernel. The manager keeps it while the outputs may have to be made again, and destroys it, also
 * where the function that it was given to fails. `run` gives 0, or else the operator has failed. */
typedef struct delta_kernel {
  int (*run)(void* state, const delta_call* c);
  void (*destroy)(void* state); /* once; may be NULL */
  void* state;
} delta_kernel;

enum delta_trait { /* combined with | */
                   DELTA_PURE = 0,
                   DELTA_RANDOM = 1,
                   DELTA_EFFECT_ONCE = 2,
                   DELTA_NEVER_REPLAY = 4,
                   DELTA_ASYNCHRONOUS = 8
};

/* What an operator touches. Nothing of it is kept; the name is copied. */
typedef struct delta_operation {
  const delta_tensor* inputs;
  size_t input_count;
  const uint64_t* outputs; /* sizes */
  size_t output_count;
  const delta_tensor* updates;
  size_t update_count;
  uint64_t workspace;
  unsigned traits;
  int64_t cost_ns; /* what it is expected to take; 0: not known, measured or guessed */
  const char* name;
} delta_operation;

/* `made` receives output_count tensors. */
delta_status delta_run(delta_manager* m, const delta_operation* op, delta_kernel body,
                       delta_tensor* made);
/* One operator may be open at a time: begin, then any of the others, then end or abort. */
delta_status delta_begin(delta_manager* m, const delta_operation* op);
delta_status delta_allocate(delta_manager* m, uint64_t size, size_t* place);
/* `first` receives the place of the first of them. */
delta_status delta_allocate_all(delta_manager* m, const uint64_t* sizes, size_t count,
                                size_t* first);
delta_status delta_allocate_block(delta_manager* m, delta_block b, size_t* place);
/* Where delta_recomputable says 0 that is the input's last use: drop it then. DELTA_MISUSE where
 * bytes would be lost that somebody may ask for. */
delta_status delta_replace(delta_manager* m, delta_tensor input, size_t* place);
delta_status delta_replace_all(delta_manager* m, const delta_tensor* inputs, size_t count,
                               size_t* first);
delta_status delta_workspace(delta_manager* m, uint64_t size, size_t* place);
delta_status delta_replay_workspace(delta_manager* m, uint64_t size, size_t* place);
/* Valid until the next function of the open operator. */
delta_status delta_arguments(delta_manager* m, const delta_call** call);
/* `count`: how many outputs it has; `made` receives them. `replay.run` may be NULL: then they can't
 * be made again. Where it fails the operator is open. */
delta_status delta_end(delta_manager* m, delta_kernel replay, delta_tensor* made, size_t count);
void delta_abort(delta_manager* m);
delta_status delta_make_room(delta_manager* m, uint64_t size);

/* --- marks, and what happened ----------------------------------------------------------------- */

delta_status delta_backward(delta_manager* m);
/* Once per training step, behind the optimizer, when what only that step needs has been dropped:
 *
 *   for (;;) {
 *     forward(m), backward(m), update(m);
 *     delta_end_of_step(m);
 *     if (time_to_evaluate) {
 *       for (each batch) forward(m), drop_all(m);   a pass has no end of its own:
 *       delta_end_of_step(m);                       one behind the last of its batches
 *     }
 *   }
 *
 * So an evaluation is a step of another kind, and what was learned of training steps stays. Without
 * any, the records of all steps are kept, and nothing is learned. */
delta_status delta_end_of_step(delta_manager* m);

typedef struct delta_counts {
  uint64_t operators, evictions, offloads, reloads, recomputes; /* since it was made */
  uint64_t replays_checked, replays_unchecked;                  /* operators, with check_replays */
  uint64_t guessed_costs; /* operators: neither cost_ns nor the device tells what they take */
  uint64_t used, peak, host_used, host_peak; /* bytes, now and at most */
} delta_counts;
void delta_count(const delta_manager* m, delta_counts* counts);

/* NOLINTEND(readability-identifier-naming) */
#ifdef __cplusplus
}
#endif

#endif

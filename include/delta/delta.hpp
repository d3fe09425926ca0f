// delta: everything, in the order in which a tensor meets it.
#pragma once

// What there is: sizes and ids, one tensor, one operator, errors, what is counted and told.
#include "delta/error.hpp"
#include "delta/kernel.hpp"
#include "delta/observer.hpp"
#include "delta/tensor.hpp"
#include "delta/units.hpp"
#include "delta/version.hpp"

// What a policy sees, and what it must be.
#include "delta/concepts.hpp"
#include "delta/context.hpp"
#include "delta/history.hpp"
#include "delta/machine_state.hpp"
#include "delta/step.hpp"

// Which tensor leaves (Algorithm 2), how it leaves (3), what comes back early (4).
#include "delta/decider.hpp"
#include "delta/heuristic.hpp"
#include "delta/prefetcher.hpp"

// Where bytes are: in virtual time, in one region of a device, in a framework's allocations.
#include "delta/storage/arena.hpp"
#include "delta/storage/device.hpp"
#include "delta/storage/device_heap.hpp"
#include "delta/storage/heap_storage.hpp"
#include "delta/storage/host_device.hpp"
#include "delta/storage/memory_source.hpp"
#include "delta/storage/simulated.hpp"
#include "delta/storage/storage.hpp"

// The whole (Algorithm 1), and named compositions.
#include "delta/adaptive.hpp"
#include "delta/learning_report.hpp"
#include "delta/manager.hpp"
#include "delta/presets.hpp"

// delta: everything, in the order in which a tensor meets it.
#pragma once

#include "delta/concepts.hpp"           // Heuristic, Decider, Prefetcher, Storage
#include "delta/context.hpp"            // what a policy may see
#include "delta/decider.hpp"            // Algorithm 3: how it leaves
#include "delta/error.hpp"              // what can go wrong
#include "delta/filter.hpp"             // Algorithm 2: which tensor leaves
#include "delta/graph.hpp"              // who made which tensors from what
#include "delta/heuristic.hpp"          // scores
#include "delta/ledger.hpp"             // the moves between places
#include "delta/manager.hpp"            // Algorithm 1
#include "delta/observer.hpp"           // what happened
#include "delta/plan.hpp"               // how missing tensors come back
#include "delta/prefetcher.hpp"         // Algorithm 4: what comes back early
#include "delta/presets.hpp"            // named compositions
#include "delta/restore.hpp"            // bringing them back
#include "delta/room.hpp"               // making room
#include "delta/storage/arena.hpp"      // bytes in one region of a device
#include "delta/storage/simulated.hpp"  // bytes in virtual time
#include "delta/tensor.hpp"             // one tensor, and where its bytes are
#include "delta/units.hpp"              // bytes, ids, stamps, tokens

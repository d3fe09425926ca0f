// delta tests: presets as one object for all three roles.
#pragma once

#include "delta/decider.hpp"
#include "delta/heuristic.hpp"
#include "delta/prefetcher.hpp"

namespace delta {

struct online_as_one_object : cheapest_way_root, cheaper, no_prefetch {};
struct dtr_as_one_object : dtr, evict_only, no_prefetch {};

static_assert(Policy<online_as_one_object> && Policy<dtr_as_one_object>);

}  // namespace delta

// delta executor: programs of many training steps from the recording of one.
#pragma once

#include <cstddef>

#include "traces/trace.hpp"

namespace delta::executor {

/// A trace as a program that runs `times` training steps one behind the other, each of which does
/// what the trace does.
///
/// What is repeated is the whole of a trace that has results, else its last step. Sources that are
/// still held at its end come once, before the first step: of a trace that has results all of them,
/// of a single step those made before its first operation, and either with the program's writes to
/// them from before its first operation; of several steps those that the last one began with, as in
/// repeat_last_step. Everything else happens in every step anew, so that sources which a step lets
/// go of (a batch, a weight that a MUTATE replaces) come again in the next one, and a step holds as
/// many bytes as the trace does at the same place, and sources that stay and come later there. Only
/// what the last of several steps drops of what was there before it keeps one reference: it has to
/// be there again.
///
/// At the end of a step whatever comes once has as many references as at its beginning: those
/// that are missing are shared, those that are too many are dropped. What the step made and still
/// holds is
/// - of a trace that has results, what they are: an operation "results", which takes no time, reads
///   all of it, as a replay brings it together; then it is dropped, and `end_of_step` follows;
/// - else left over: when another step follows, it is dropped behind `end_of_step`; or it is what
///   that step drops, as gradients are (handed_over): then no source comes in its place.
/// So no step touches what an operation of an earlier one made, and the rules of `check` that hold
/// for one step hold for all.
///
/// Once is the trace itself, unless it has several steps: then its last one, which is then a
/// program of its own. `recorded` keeps the rules of `check`. Throws std::invalid_argument for
/// `times` of 0, for a trace of several steps that goes on behind the end of the last, or whose
/// last step begins with an operation's output; std::length_error beyond what a trace can hold.
/// O(recorded + times * step).
[[nodiscard]] trace repeat_trace(const trace& recorded, std::size_t times);

/// A program whose steps are those of `a` and `b` in turns: a, b, a, b, ..., `times` of each. What
/// comes once comes before the first step, that of `a` first; a step of one leaves the sources of
/// the other alone. Each step is as in repeat_trace. Throws as that, and std::invalid_argument
/// where the two were not recorded on the same machine.
[[nodiscard]] trace alternate(const trace& a, const trace& b, std::size_t times);

}  // namespace delta::executor

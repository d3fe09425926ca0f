#include "train/engine_table.hpp"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>
#include <variant>

#include "cli/options.hpp"
#include "cli/output_file.hpp"
#include "cuda/cudnn_engines.hpp"
#include "model/live_bytes.hpp"
#include "model/models.hpp"
#include "train/digest.hpp"
#include "train/trainer.hpp"

namespace delta::executor {
namespace {

using json = nlohmann::ordered_json;

constexpr bytes flat_cap = 256_MiB;
constexpr std::uint64_t gpu_granularity = 512;
/// Of the memory, in percent; the last room goes by no memory.
constexpr std::array<std::uint64_t, 3> shares{100, 40, 20};
static_assert(shares.size() + 1 == rooms_of_a_row.size());

bool same(const conv_shape& a, const conv_shape& b) {
  const auto all = [](const conv_shape& s) {
    return std::array{s.n, s.h, s.w, s.c, s.k, s.kh, s.kw, s.stride, s.pad, s.groups};
  };
  return all(a) == all(b);
}

bool always_builds(const engine_candidate&) {
  return true;
}

std::optional<engine_candidate> chosen_of(const std::vector<engine_candidate>& all,
                                          const engine_rule& rule) {
  const auto at = choose_engine(all, rule, always_builds);
  if (!at) return std::nullopt;
  return all[*at];
}

/// Whether an engine before the chosen one had no room.
bool passed_over(const std::vector<engine_candidate>& all, const engine_rule& rule) {
  for (const engine_candidate& c : all) {
    const engine_refusal why = refusal_of(c, rule);
    if (why == engine_refusal::none) return false;
    if (why == engine_refusal::workspace) return true;
  }
  return false;
}

json parsed(const std::filesystem::path& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error(path.string() + ": can't be opened");
  try {
    return json::parse(file);
  } catch (const json::exception&) {
    throw std::runtime_error(path.string() + ": is no JSON");
  }
}

json to_json(const room_outcome& r) {
  return {{"passed_over", r.passed_over},
          {"without", r.without},
          {"tensor_core", r.tensor_core},
          {"largest_workspace", r.largest.count}};
}

json to_json(const engine_row& r) {
  json rooms = json::object();
  for (std::size_t i = 0; i < r.rooms.size(); ++i)
    rooms[std::string(rooms_of_a_row[i])] = to_json(r.rooms[i]);
  return {{"model", r.model},  {"batch", r.batch}, {"gpu", r.gpu},
          {"tf32", r.tf32},    {"rooms", rooms},   {"convolutions", r.convolutions},
          {"digest", r.digest}};
}

engine_row row_from(const json& j) {
  engine_row r{.model = j.at("model"),
               .gpu = j.at("gpu"),
               .batch = j.at("batch"),
               .tf32 = j.at("tf32"),
               .convolutions = j.at("convolutions"),
               .digest = j.at("digest")};
  for (std::size_t i = 0; i < r.rooms.size(); ++i) {
    const json& room = j.at("rooms").at(std::string(rooms_of_a_row[i]));
    r.rooms[i] = {.passed_over = room.at("passed_over"),
                  .without = room.at("without"),
                  .tensor_core = room.at("tensor_core"),
                  .largest = bytes{room.at("largest_workspace").get<std::uint64_t>()}};
  }
  return r;
}

std::string_view name_of(operator_type type) {
  if (type == operator_type::conv_forward) return "forward";
  return type == operator_type::conv_backward_data ? "backward data" : "backward filter";
}

std::string text_of(const conv_shape& s) {
  return std::to_string(s.kh) + "x" + std::to_string(s.kw) + " " + std::to_string(s.c) + "→" +
         std::to_string(s.k) + " at " + std::to_string(s.h) +
         (s.stride > 1 ? ", stride " + std::to_string(s.stride) : "") +
         (s.groups > 1 ? ", " + std::to_string(s.groups) + " groups" : "");
}

std::string mebibytes(bytes b) {
  return std::to_string((b.count + (1_MiB).count - 1) / (1_MiB).count);
}

std::string cells_of(const std::optional<engine_candidate>& c) {
  if (!c) return "ours | ";
  return std::to_string(c->engine) + (c->notes.tensor_core ? " TC" : "") + " | " +
         mebibytes(c->workspace);
}

}  // namespace

gpu_description read_gpu(const std::filesystem::path& path) {
  json properties = parsed(path);
  properties.erase("source");  // for people
  try {
    return {properties.at("deviceName"), described_gpu(properties.dump())};
  } catch (const json::exception&) {
    throw std::runtime_error(path.string() + ": describes no GPU: there is no deviceName");
  }
}

engine_table::engine_table(std::string_view model, int batch, const gpu_description& on)
    : model_(model), gpu_(on.name), batch_(batch) {
  train_options o;
  o.device = device_choice::cuda;
  o.batch = batch;
  o.image = 224;
  const graph g = make_model(model, model_of(o, 3, 1000));
  peak_ = bytes{peak_of_values(g, gpu_granularity)};
  const auto live = live_bytes(g, gpu_granularity);
  for (std::size_t i = 0; i < g.nodes.size(); ++i) {
    const node& n = g.nodes[i];
    const auto* shape = std::get_if<conv_shape>(&n.shape);
    if (!shape) continue;
    convolution c{n.type, *shape, bytes{live[i]}, candidates_.size()};
    const auto known = std::find_if(all_.begin(), all_.end(), [&](const convolution& other) {
      return other.type == c.type && same(other.shape, c.shape);
    });
    if (known != all_.end())
      c.candidates = known->candidates;
    else
      candidates_.push_back(convolution_engines(*on.gpu, c.type, c.shape));
    all_.push_back(c);
  }
}

bytes engine_table::room(std::size_t way, const convolution& c) const {
  if (way == shares.size()) return flat_cap;
  return workspace_room(bytes{peak_.count * shares[way] / 100}, c.live);
}

engine_row engine_table::row(bool tf32) const {
  engine_row r{.model = model_,
               .gpu = gpu_,
               .batch = batch_,
               .tf32 = tf32,
               .convolutions = int(all_.size())};
  digest all;
  for (std::size_t way = 0; way < r.rooms.size(); ++way) {
    room_outcome& out = r.rooms[way];
    for (const convolution& c : all_) {
      const auto& list = candidates_[c.candidates];
      const engine_rule rule{tf32, room(way, c)};
      out.passed_over += int(passed_over(list, rule));
      const auto engine = chosen_of(list, rule);
      out.without += int(!engine);
      if (!engine) continue;
      out.tensor_core += int(engine->notes.tensor_core);
      out.largest = std::max(out.largest, engine->workspace);
      const std::string text =
          to_string(*engine) + ", " + std::to_string(engine->workspace.count) + "\n";
      all.add(std::span<const char>(text));
    }
  }
  r.digest = all.hex();
  return r;
}

std::vector<engine_line> engine_table::lines() const {
  std::vector<engine_line> out;
  for (const convolution& c : all_) {
    const auto known = std::find_if(out.begin(), out.end(), [&](const engine_line& l) {
      return l.type == c.type && same(l.shape, c.shape);
    });
    if (known != out.end()) {
      ++known->count;
      continue;
    }
    const auto& list = candidates_[c.candidates];
    out.push_back({c.type, c.shape, 1, chosen_of(list, {true, room(0, c)}),
                   chosen_of(list, {false, room(0, c)})});
  }
  return out;
}

void write_rows(const std::filesystem::path& path, std::string_view version,
                const std::vector<engine_row>& rows) {
  // A row a line.
  std::string text = "{\"cudnn\": \"" + std::string(version) + "\", \"rows\": [";
  for (std::size_t i = 0; i < rows.size(); ++i)
    text += (i == 0 ? "\n" : ",\n") + to_json(rows[i]).dump();
  output_file(path).commit(text + "\n]}\n");
}

written_rows read_rows(const std::filesystem::path& path) {
  const json all = parsed(path);
  try {
    written_rows w{.version = all.at("cudnn"), .rows = {}};
    for (const json& row : all.at("rows")) w.rows.push_back(row_from(row));
    return w;
  } catch (const json::exception&) {
    throw std::runtime_error(path.string() + ": holds no rows of engines");
  }
}

std::string line_of(const engine_row& r) {
  std::string line = "| " + r.model + " | " + std::to_string(r.batch) + " | " + r.gpu + " | " +
                     (r.tf32 ? "TF32" : "float32") + " | " + std::to_string(r.convolutions) +
                     " | " + std::to_string(r.rooms[0].tensor_core) + " | " +
                     mebibytes(r.rooms[0].largest);
  for (const room_outcome& room : r.rooms)
    line += " | " + std::to_string(room.passed_over) + " / " + std::to_string(room.without);
  return line + " |";
}

std::string engine_tables(const written_rows& w, std::string_view what,
                          const std::vector<engine_line>& lines) {
  std::string text =
      "| model | batch | GPU | numbers | convolutions | on tensor cores "
      "| largest workspace, MiB";
  for (const std::string_view room : rooms_of_a_row) text += " | " + std::string(room);
  text += " |\n|---|---|---|---|---|---|---";
  for (std::size_t i = 0; i < rooms_of_a_row.size(); ++i) text += "|---";
  text += "|\n";
  for (const engine_row& r : w.rows) text += line_of(r) + "\n";
  text += "\n## " + std::string(what) +
          ", unmanaged\n| convolution | times | pass | TF32: engine | MiB | float32: engine | MiB "
          "|\n|---|---|---|---|---|---|---|\n";
  for (const engine_line& l : lines)
    text += "| " + text_of(l.shape) + " | " + std::to_string(l.count) + " | " +
            std::string(name_of(l.type)) + " | " + cells_of(l.tf32) + " | " + cells_of(l.plain) +
            " |\n";
  return text;
}

}  // namespace delta::executor

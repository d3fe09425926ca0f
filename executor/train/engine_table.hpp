// delta executor: which engines the convolutions of a model's training step get on a GPU that need
// not be there: cuDNN answers for a described one. For a table, and to notice when it changes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backend/engine_choice.hpp"
#include "delta/units.hpp"
#include "model/graph.hpp"

namespace delta::executor {

class cudnn_gpu;

/// A description of a GPU (tools/gpus/*.json).
struct gpu_description {
  std::string name;  ///< "NVIDIA H100 80GB HBM3"
  std::shared_ptr<const cudnn_gpu> gpu;
};
/// Throws std::runtime_error (the file can't be read) or cuda_error (cuDNN can't take it).
[[nodiscard]] gpu_description read_gpu(const std::filesystem::path&);

/// What comes of one way to give workspaces their room.
struct room_outcome {
  int passed_over = 0;  ///< operators with an engine before the chosen one that had no room
  int without = 0;      ///< operators for which no engine is left: our own kernels run them
  int tensor_core = 0;  ///< operators on tensor cores
  bytes largest{};      ///< workspace

  bool operator==(const room_outcome&) const = default;
};

/// The rooms of a row: by the memory of an unmanaged run, of 40 % and of 20 % of it, and the flat
/// 256 MiB.
inline constexpr std::array<std::string_view, 4> rooms_of_a_row{"unmanaged", "40 %", "20 %",
                                                                "256 MiB flat"};

/// A model on a GPU, in float32 or with TF32.
struct engine_row {
  std::string model, gpu;
  int batch = 0;
  bool tf32 = false;
  int convolutions = 0;
  std::array<room_outcome, rooms_of_a_row.size()> rooms{};
  std::string digest{};  ///< of every operator's engine, knobs and workspace in every room

  bool operator==(const engine_row&) const = default;
};

/// Equal convolutions of a step, and what they get in an unmanaged run.
struct engine_line {
  operator_type type{};
  conv_shape shape{};
  int count = 0;
  std::optional<engine_candidate> tf32, plain;
};

/// Asks for each shape of a step once.
class engine_table {
 public:
  /// Images of 224x224 in 1,000 classes; otherwise as delta-train has it on a GPU. Throws
  /// std::invalid_argument (no such model).
  engine_table(std::string_view model, int batch, const gpu_description&);

  [[nodiscard]] engine_row row(bool tf32) const;
  /// In the order of the step, equal ones together.
  [[nodiscard]] std::vector<engine_line> lines() const;

 private:
  struct convolution {
    operator_type type;
    conv_shape shape;
    bytes live;
    std::size_t candidates;  ///< in candidates_
  };
  [[nodiscard]] bytes room(std::size_t way, const convolution&) const;

  std::string model_, gpu_;
  int batch_;
  bytes peak_;
  std::vector<convolution> all_;
  std::vector<std::vector<engine_candidate>> candidates_;
};

/// Rows as JSON, with the version of cuDNN that they are of.
void write_rows(const std::filesystem::path&, std::string_view version,
                const std::vector<engine_row>&);
struct written_rows {
  std::string version;
  std::vector<engine_row> rows;
};
/// Throws std::runtime_error.
[[nodiscard]] written_rows read_rows(const std::filesystem::path&);

/// The tables of these rows, and of one model's lines, in Markdown.
[[nodiscard]] std::string engine_tables(const written_rows&, std::string_view what,
                                        const std::vector<engine_line>&);
/// One row's line of the first table.
[[nodiscard]] std::string line_of(const engine_row&);

}  // namespace delta::executor

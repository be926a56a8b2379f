// HDF5 behind one checked wrapper: no HDF5 type leaves hdf5_library.cpp. Files are built and read in memory,
// so that a full disk or a broken file system never meets the library, which cannot recover from them.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace orrery {

struct ColumnLabel {
  const char* unit;  // "s", "B", "1" for a pure number, "" for text
  const char* description;
};

// Element types of columns: double, std::int32_t, std::int16_t, std::uint8_t, std::string.
// A call that fails here is a mistake of ours: Defect.
class Hdf5Builder {
 public:
  Hdf5Builder();
  ~Hdf5Builder();
  Hdf5Builder(const Hdf5Builder&) = delete;
  Hdf5Builder& operator=(const Hdf5Builder&) = delete;

  void group(const std::string& path, const std::string& description);
  // On a group or column, in the order of the calls.
  void attribute(const std::string& path, const std::string& name, const std::string& value);
  void attribute(const std::string& path, const std::string& name, double value);
  template <class T>
  void column(const std::string& path, const std::vector<T>& values, ColumnLabel label);
  void scalar(const std::string& path, double value, ColumnLabel label);
  // Row by row.
  void matrix(const std::string& path, const std::vector<double>& values, std::size_t columns,
              ColumnLabel label);

  // The bytes of the file.
  std::string finish();

 private:
  void label(const std::string& path, ColumnLabel text);

  std::int64_t file_;
};

struct Hdf5Matrix {
  std::size_t rows = 0;
  std::size_t columns = 0;
  std::vector<double> values;  // row by row
};

// Everything here throws InputError naming the file and the object: the file is not what it should be.
class Hdf5Reader {
 public:
  // `image`: the bytes of the file called `name`.
  Hdf5Reader(const std::string& image, std::string name);
  ~Hdf5Reader();
  Hdf5Reader(const Hdf5Reader&) = delete;
  Hdf5Reader& operator=(const Hdf5Reader&) = delete;

  // Attributes of a group that are text, in the order they were written.
  std::vector<std::pair<std::string, std::string>> text_attributes(const std::string& path);
  double number_attribute(const std::string& path, const std::string& name);
  template <class T>
  std::vector<T> column(const std::string& path);
  double scalar(const std::string& path);
  [[nodiscard]] bool has(const std::string& path) const;  // of an existing group
  Hdf5Matrix matrix(const std::string& path);

  [[noreturn]] void fail(const std::string& path, const std::string& found,
                         const std::string& expected) const;

 private:
  std::string name_;
  std::int64_t file_;
};

}  // namespace orrery

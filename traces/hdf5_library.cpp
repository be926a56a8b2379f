#include "traces/hdf5_library.hpp"

#include <hdf5.h>

#include <algorithm>
#include <cstring>

#include "platforms/errors.hpp"

namespace orrery {
namespace {

constexpr hsize_t kChunkRows = 65536;
constexpr hsize_t kChunkColumns = 4096;  // of a matrix
constexpr unsigned kDeflateLevel = 1;    // 2 and up cost twice the time for a few per cent
constexpr std::size_t kMemoryStep = 4 << 20;
// Deflate never shrinks by more than 1032; a column that claims more than its storage could hold is damaged,
// and is refused before memory is reserved for it.
constexpr double kMostBytesPerStoredByte = 1100;
constexpr double kAlwaysAllowedBytes = 1 << 16;

// Any HDF5 identifier, closed at the end of its life.
class Handle {
 public:
  using Close = herr_t (*)(hid_t);
  Handle(hid_t id, Close close) : id_(id), close_(close) {}
  ~Handle() {
    if (id_ >= 0) close_(id_);
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  [[nodiscard]] hid_t id() const { return id_; }
  [[nodiscard]] bool valid() const { return id_ >= 0; }

 private:
  hid_t id_;
  Close close_;
};

void silence() {
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
}

void built(herr_t status, const std::string& path) {
  if (status < 0) throw Defect("HDF5 refused to build " + path);
}
const Handle& built(const Handle& handle, const std::string& path) {
  built(handle.valid() ? 0 : -1, path);
  return handle;
}

template <class T>
hid_t native_type();
template <>
hid_t native_type<double>() {
  return H5T_NATIVE_DOUBLE;
}
template <>
hid_t native_type<std::int32_t>() {
  return H5T_NATIVE_INT32;
}
template <>
hid_t native_type<std::int16_t>() {
  return H5T_NATIVE_INT16;
}
template <>
hid_t native_type<std::uint8_t>() {
  return H5T_NATIVE_UINT8;
}

hid_t utf8_type(std::size_t size) {
  const hid_t type = H5Tcopy(H5T_C_S1);
  H5Tset_size(type, size);
  H5Tset_cset(type, H5T_CSET_UTF8);
  if (size != H5T_VARIABLE) H5Tset_strpad(type, H5T_STR_NULLPAD);
  return type;
}

// Without the times HDF5 would put into every object: the same run gives the same bytes.
hid_t timeless(hid_t kind) {
  const hid_t properties = H5Pcreate(kind);
  H5Pset_obj_track_times(properties, 0);
  return properties;
}

struct DatasetShape {
  std::vector<hsize_t> extent;  // empty: a scalar
};

// Groups on the way to a dataset exist: group() made them.
void write_dataset(hid_t file, const std::string& path, const DatasetShape& shape, hid_t type,
                   const void* data) {
  const auto& extent = shape.extent;
  const int dimensions = static_cast<int>(extent.size());
  const Handle space(
      dimensions == 0 ? H5Screate(H5S_SCALAR) : H5Screate_simple(dimensions, extent.data(), nullptr),
      H5Sclose);
  const Handle properties(timeless(H5P_DATASET_CREATE), H5Pclose);
  built(space, path);
  built(properties, path);
  const bool empty = std::find(extent.begin(), extent.end(), 0U) != extent.end();
  if (dimensions > 0 && !empty) {
    std::vector<hsize_t> chunk = extent;
    chunk[0] = std::min(chunk[0], dimensions == 1 ? kChunkRows : kChunkRows / kChunkColumns);
    if (dimensions > 1) chunk[1] = std::min(chunk[1], kChunkColumns);
    built(H5Pset_chunk(properties.id(), dimensions, chunk.data()), path);
    built(H5Pset_shuffle(properties.id()), path);
    built(H5Pset_deflate(properties.id(), kDeflateLevel), path);
  }
  const Handle dataset(
      H5Dcreate2(file, path.c_str(), type, space.id(), H5P_DEFAULT, properties.id(), H5P_DEFAULT), H5Dclose);
  built(dataset, path);
  if (!empty) built(H5Dwrite(dataset.id(), type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data), path);
}

void write_attribute(hid_t file, const std::string& path, const std::string& name, hid_t type,
                     const void* data) {
  const Handle object(H5Oopen(file, path.c_str(), H5P_DEFAULT), H5Oclose);
  const Handle space(H5Screate(H5S_SCALAR), H5Sclose);
  built(object, path);
  const Handle attribute(H5Acreate2(object.id(), name.c_str(), type, space.id(), H5P_DEFAULT, H5P_DEFAULT),
                         H5Aclose);
  built(attribute, path + " attribute " + name);
  built(H5Awrite(attribute.id(), type, data), path + " attribute " + name);
}

// A file in memory. The format of HDF5 1.8 guards most of its structure with checksums; that of 1.10 would
// also mark the image as open for writing.
hid_t memory_access() {
  const hid_t access = H5Pcreate(H5P_FILE_ACCESS);
  H5Pset_fapl_core(access, kMemoryStep, 0);
  H5Pset_libver_bounds(access, H5F_LIBVER_V18, H5F_LIBVER_V18);
  return access;
}

}  // namespace

Hdf5Builder::Hdf5Builder() : file_(-1) {
  silence();
  const Handle access(memory_access(), H5Pclose);
  const Handle properties(timeless(H5P_FILE_CREATE), H5Pclose);  // of the root group
  file_ = H5Fcreate("orrery trace", H5F_ACC_TRUNC, properties.id(), access.id());
  built(file_ < 0 ? -1 : 0, "a file in memory");
}

Hdf5Builder::~Hdf5Builder() {
  H5Fclose(file_);
}

void Hdf5Builder::group(const std::string& path, const std::string& description) {
  {
    const Handle properties(timeless(H5P_GROUP_CREATE), H5Pclose);
    built(H5Pset_attr_creation_order(properties.id(), H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED), path);
    built(Handle(H5Gcreate2(file_, path.c_str(), H5P_DEFAULT, properties.id(), H5P_DEFAULT), H5Gclose), path);
  }
  if (!description.empty()) attribute(path, "description", description);
}

void Hdf5Builder::attribute(const std::string& path, const std::string& name, const std::string& value) {
  const Handle type(utf8_type(H5T_VARIABLE), H5Tclose);
  const char* text = value.c_str();
  write_attribute(file_, path, name, type.id(), &text);
}

void Hdf5Builder::attribute(const std::string& path, const std::string& name, double value) {
  write_attribute(file_, path, name, H5T_NATIVE_DOUBLE, &value);
}

void Hdf5Builder::label(const std::string& path, ColumnLabel text) {
  attribute(path, "unit", std::string(text.unit));
  attribute(path, "description", std::string(text.description));
}

template <class T>
void Hdf5Builder::column(const std::string& path, const std::vector<T>& values, ColumnLabel column_label) {
  write_dataset(file_, path, {{values.size()}}, native_type<T>(), values.data());
  label(path, column_label);
}

// Text of one width compresses and needs no heap; all is padded with zero bytes to the longest.
template <>
void Hdf5Builder::column(const std::string& path, const std::vector<std::string>& values,
                         ColumnLabel column_label) {
  std::size_t width = 1;
  for (const std::string& value : values) width = std::max(width, value.size());
  std::string padded(width * values.size(), '\0');
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::copy(values[i].begin(), values[i].end(), padded.begin() + static_cast<std::ptrdiff_t>(i * width));
  }
  const Handle type(utf8_type(width), H5Tclose);
  write_dataset(file_, path, {{values.size()}}, type.id(), padded.data());
  label(path, column_label);
}

template void Hdf5Builder::column(const std::string&, const std::vector<double>&, ColumnLabel);
template void Hdf5Builder::column(const std::string&, const std::vector<std::int32_t>&, ColumnLabel);
template void Hdf5Builder::column(const std::string&, const std::vector<std::int16_t>&, ColumnLabel);
template void Hdf5Builder::column(const std::string&, const std::vector<std::uint8_t>&, ColumnLabel);

void Hdf5Builder::scalar(const std::string& path, double value, ColumnLabel scalar_label) {
  write_dataset(file_, path, {}, H5T_NATIVE_DOUBLE, &value);
  label(path, scalar_label);
}

void Hdf5Builder::matrix(const std::string& path, const std::vector<double>& values, std::size_t columns,
                         ColumnLabel matrix_label) {
  const std::size_t rows = columns == 0 ? 0 : values.size() / columns;
  ORRERY_ENSURE(rows * columns == values.size());
  write_dataset(file_, path, {{rows, columns}}, H5T_NATIVE_DOUBLE, values.data());
  label(path, matrix_label);
}

// H5Fget_file_image of 1.10.8 clears flags in the superblock without renewing its checksum, and nobody can
// open that image; the memory behind the file is whole after a flush.
std::string Hdf5Builder::finish() {
  built(H5Fflush(file_, H5F_SCOPE_GLOBAL), "the file image");
  const ssize_t size = H5Fget_file_image(file_, nullptr, 0);
  built(size < 0 ? -1 : 0, "the file image");
  void** memory = nullptr;
  built(H5Fget_vfd_handle(file_, H5P_DEFAULT, reinterpret_cast<void**>(&memory)), "the file image");
  return {static_cast<const char*>(*memory), static_cast<std::size_t>(size)};
}

namespace {

std::size_t checked_size(const Hdf5Reader& reader, const std::string& path, const Handle& dataset,
                         const Handle& space, std::size_t element) {
  const hssize_t count = H5Sget_simple_extent_npoints(space.id());
  if (count < 0) reader.fail(path, "no extent", "a column");
  const double needed = static_cast<double>(count) * static_cast<double>(element);
  const double stored = static_cast<double>(H5Dget_storage_size(dataset.id()));
  if (needed > kAlwaysAllowedBytes + kMostBytesPerStoredByte * stored) {
    reader.fail(path, "more rows than the file can hold", "an undamaged file");
  }
  return static_cast<std::size_t>(count);
}

Handle open_dataset(const Hdf5Reader& reader, hid_t file, const std::string& path) {
  const hid_t id = H5Dopen2(file, path.c_str(), H5P_DEFAULT);
  if (id < 0) reader.fail(path, "nothing readable", "this column of a version 1 trace");
  return {id, H5Dclose};
}

void check_class(const Hdf5Reader& reader, const std::string& path, const Handle& type, bool text) {
  const H5T_class_t found = H5Tget_class(type.id());
  const bool number = found == H5T_INTEGER || found == H5T_FLOAT;
  if (text ? found != H5T_STRING : !number) {
    reader.fail(path, text ? "no text" : "no numbers", text ? "text" : "numbers");
  }
}

std::string from_padded(const char* begin, std::size_t width) {
  return {begin, std::find(begin, begin + width, '\0')};
}

// A text value of a fixed or variable type.
std::string read_text(const Hdf5Reader& reader, const std::string& place, hid_t attribute,
                      const Handle& type) {
  if (H5Tis_variable_str(type.id()) > 0) {
    const Handle memory(utf8_type(H5T_VARIABLE), H5Tclose);
    H5Tset_cset(memory.id(), H5Tget_cset(type.id()));
    char* text = nullptr;
    if (H5Aread(attribute, memory.id(), &text) < 0) reader.fail(place, "damaged text", "text");
    const std::string value = text == nullptr ? "" : text;
    H5free_memory(text);
    return value;
  }
  std::string padded(H5Tget_size(type.id()), '\0');
  if (H5Aread(attribute, type.id(), padded.data()) < 0) reader.fail(place, "damaged text", "text");
  return from_padded(padded.data(), padded.size());
}

std::string attribute_name(hid_t attribute) {
  const ssize_t length = H5Aget_name(attribute, 0, nullptr);
  if (length <= 0) return {};
  std::string name(static_cast<std::size_t>(length) + 1, '\0');
  H5Aget_name(attribute, name.size(), name.data());
  name.pop_back();
  return name;
}

// Another program that rewrote the file may not have kept the order of attributes.
H5_index_t order_of_attributes(hid_t object) {
  const Handle properties(H5Gget_create_plist(object), H5Pclose);
  unsigned flags = 0;
  H5Pget_attr_creation_order(properties.id(), &flags);
  return (flags & H5P_CRT_ORDER_INDEXED) != 0 ? H5_INDEX_CRT_ORDER : H5_INDEX_NAME;
}

}  // namespace

Hdf5Reader::Hdf5Reader(const std::string& image, std::string name) : name_(std::move(name)), file_(-1) {
  silence();
  const Handle access(memory_access(), H5Pclose);
  // HDF5 copies the image; it takes a pointer to non-const because it could also be told to adopt it.
  if (!image.empty() && H5Pset_file_image(access.id(), const_cast<char*>(image.data()), image.size()) >= 0) {
    file_ = H5Fopen("orrery trace", H5F_ACC_RDONLY, access.id());
  }
  if (file_ < 0) throw InputError(name_, "no readable HDF5 file", "a trace that orrery wrote");
}

Hdf5Reader::~Hdf5Reader() {
  H5Fclose(file_);
}

void Hdf5Reader::fail(const std::string& path, const std::string& found, const std::string& expected) const {
  throw InputError(name_ + ": " + path, found, expected);
}

std::vector<std::pair<std::string, std::string>> Hdf5Reader::text_attributes(const std::string& path) {
  const Handle object(H5Oopen(file_, path.c_str(), H5P_DEFAULT), H5Oclose);
  const int count = object.valid() ? H5Aget_num_attrs(object.id()) : -1;
  if (count < 0) {
    fail(path, "nothing readable", "this group of a version 1 trace");
  }
  const H5_index_t order = order_of_attributes(object.id());
  std::vector<std::pair<std::string, std::string>> result;
  for (hsize_t i = 0; i < static_cast<hsize_t>(count); ++i) {
    const Handle attribute(H5Aopen_by_idx(object.id(), ".", order, H5_ITER_INC, i, H5P_DEFAULT, H5P_DEFAULT),
                           H5Aclose);
    if (!attribute.valid()) fail(path, "a damaged attribute", "an undamaged file");
    const Handle type(H5Aget_type(attribute.id()), H5Tclose);
    const Handle space(H5Aget_space(attribute.id()), H5Sclose);
    const bool single = H5Sget_simple_extent_npoints(space.id()) == 1;
    if (!single || H5Tget_class(type.id()) != H5T_STRING) continue;
    const std::string name = attribute_name(attribute.id());
    result.emplace_back(name, read_text(*this, path + " attribute " + name, attribute.id(), type));
  }
  return result;
}

double Hdf5Reader::number_attribute(const std::string& path, const std::string& name) {
  const Handle attribute(H5Aopen_by_name(file_, path.c_str(), name.c_str(), H5P_DEFAULT, H5P_DEFAULT),
                         H5Aclose);
  double value = 0;
  if (!attribute.valid()) fail(path, "no attribute " + name, "this attribute of a version 1 trace");
  const Handle type(H5Aget_type(attribute.id()), H5Tclose);
  const Handle space(H5Aget_space(attribute.id()), H5Sclose);
  check_class(*this, path + " attribute " + name, type, false);
  if (H5Sget_simple_extent_npoints(space.id()) != 1 ||
      H5Aread(attribute.id(), H5T_NATIVE_DOUBLE, &value) < 0) {
    fail(path + " attribute " + name, "no single number", "a number");
  }
  return value;
}

template <class T>
std::vector<T> Hdf5Reader::column(const std::string& path) {
  const Handle dataset = open_dataset(*this, file_, path);
  const Handle space(H5Dget_space(dataset.id()), H5Sclose);
  const Handle type(H5Dget_type(dataset.id()), H5Tclose);
  check_class(*this, path, type, false);
  std::vector<T> values(checked_size(*this, path, dataset, space, sizeof(T)));
  if (!values.empty() &&
      H5Dread(dataset.id(), native_type<T>(), H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()) < 0) {
    fail(path, "a damaged column", "an undamaged file");
  }
  return values;
}

template <>
std::vector<std::string> Hdf5Reader::column(const std::string& path) {
  const Handle dataset = open_dataset(*this, file_, path);
  const Handle space(H5Dget_space(dataset.id()), H5Sclose);
  const Handle type(H5Dget_type(dataset.id()), H5Tclose);
  check_class(*this, path, type, true);
  if (H5Tis_variable_str(type.id()) > 0) fail(path, "text of variable width", "text of one width");
  const std::size_t width = H5Tget_size(type.id());
  const std::size_t count = checked_size(*this, path, dataset, space, width);
  std::string padded(width * count, '\0');
  if (count > 0 && H5Dread(dataset.id(), type.id(), H5S_ALL, H5S_ALL, H5P_DEFAULT, padded.data()) < 0) {
    fail(path, "a damaged column", "an undamaged file");
  }
  std::vector<std::string> values;
  for (std::size_t i = 0; i < count; ++i) values.push_back(from_padded(padded.data() + i * width, width));
  return values;
}

template std::vector<double> Hdf5Reader::column(const std::string&);
template std::vector<std::int32_t> Hdf5Reader::column(const std::string&);
template std::vector<std::int16_t> Hdf5Reader::column(const std::string&);
template std::vector<std::uint8_t> Hdf5Reader::column(const std::string&);

bool Hdf5Reader::has(const std::string& path) const {
  return H5Lexists(file_, path.c_str(), H5P_DEFAULT) > 0;
}

double Hdf5Reader::scalar(const std::string& path) {
  const std::vector<double> values = column<double>(path);
  if (values.size() != 1) fail(path, std::to_string(values.size()) + " numbers", "one number");
  return values[0];
}

Hdf5Matrix Hdf5Reader::matrix(const std::string& path) {
  const Handle dataset = open_dataset(*this, file_, path);
  const Handle space(H5Dget_space(dataset.id()), H5Sclose);
  if (H5Sget_simple_extent_ndims(space.id()) != 2) fail(path, "no matrix", "a matrix");
  hsize_t extent[2] = {0, 0};
  H5Sget_simple_extent_dims(space.id(), extent, nullptr);
  return {.rows = extent[0], .columns = extent[1], .values = column<double>(path)};
}

}  // namespace orrery

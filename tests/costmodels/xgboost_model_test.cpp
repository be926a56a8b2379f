#include "costmodels/models/xgboost_model.hpp"

#include <array>
#include <filesystem>

#include "costmodels/models/sha256.hpp"
#include "platforms/errors.hpp"
#include "tests/catch.hpp"

using namespace orrery;

namespace {

struct Lesson {
  FeatureMatrix features{2};
  std::vector<float> targets;
};

// A step in the first feature; the second says nothing.
Lesson steps() {
  Lesson lesson;
  for (int i = 0; i < 200; ++i) {
    lesson.features.add(std::array{static_cast<float>(i), static_cast<float>(i % 7)});
    lesson.targets.push_back(i < 100 ? 1.0F : 3.0F);
  }
  return lesson;
}

auto threads() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
}

const TrainingOptions kQuick{.trees = 60, .leaves = 4, .learning_rate = 0.2, .min_child_weight = 1};

}  // namespace

TEST_CASE("models are taught, loaded and asked by the thread that calls, and start no other") {
  const auto before = threads();
  const Lesson lesson = steps();
  const auto model = XgboostModel::train(lesson.features, lesson.targets, {}, kQuick);
  CHECK(threads() == before);
  const auto loaded = XgboostModel::load(model.save(), "again");
  CHECK(threads() == before);
  CHECK(loaded.predict(lesson.features) == model.predict(lesson.features));
  CHECK(threads() == before);
}

TEST_CASE("a model learns a step and answers a batch as it answers rows one by one") {
  const Lesson lesson = steps();
  const auto model = XgboostModel::train(lesson.features, lesson.targets, {}, kQuick);
  const auto batch = model.predict(lesson.features);
  REQUIRE(batch.size() == 200);
  CHECK(batch[20] == Approx(1).epsilon(0.01));
  CHECK(batch[150] == Approx(3).epsilon(0.01));
  for (const std::size_t row : {0U, 99U, 100U, 199U}) {
    FeatureMatrix one(2);
    one.add(lesson.features.row(row));
    CHECK(model.predict(one).front() == batch[row]);
  }
}

TEST_CASE("weights decide between rows that contradict each other") {
  FeatureMatrix features(1);
  std::vector<float> targets, weights;
  for (int i = 0; i < 100; ++i) {
    features.add(std::array{0.0F});
    targets.push_back(i % 2 == 0 ? 0.0F : 1.0F);
    weights.push_back(i % 2 == 0 ? 1.0F : 3.0F);
  }
  const auto model = XgboostModel::train(features, targets, weights, kQuick);
  CHECK(model.predict(features).front() == Approx(0.75).epsilon(0.01));  // (0 x 1 + 1 x 3) / 4
}

TEST_CASE("the same rows give the same bytes, and the bytes give the same answers and attributes") {
  const Lesson lesson = steps();
  auto first = XgboostModel::train(lesson.features, lesson.targets, {}, kQuick);
  auto second = XgboostModel::train(lesson.features, lesson.targets, {}, kQuick);
  first.set_attribute("kind", "gemm");
  second.set_attribute("kind", "gemm");
  CHECK(first.save() == second.save());
  const auto loaded = XgboostModel::load(first.save(), "a.ubj");
  CHECK(loaded.predict(lesson.features) == first.predict(lesson.features));
  CHECK(loaded.attribute("kind") == "gemm");
  CHECK_FALSE(loaded.attribute("none"));
  CHECK(loaded.features() == 2);
}

TEST_CASE("bytes that are no model are an input error that names the file") {
  CHECK_THROWS_AS(XgboostModel::load("", "a.ubj"), InputError);
  CHECK_THROWS_AS(XgboostModel::load("binf of the old format", "a.ubj"), InputError);
  CHECK_THROWS_AS(XgboostModel::load("{\"no\": \"model\"}", "a.ubj"), InputError);
}

TEST_CASE("SHA-256 gives the digests of FIPS 180-4's examples") {
  CHECK(sha256_hex("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(sha256_hex("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(sha256_hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq") ==
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}

// A folder of measured tables with known laws, for tests of what a fit finds.
#pragma once

#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "costmodels/fit/fit.hpp"

namespace orrery::test {

// A folder of tables written from formulas, so that what the fit should find is known: GEMMs at 0.6 of the
// peak on A100 and 0.5 in fp32, kernels at half the bandwidth and 3 us, all-reduces at 0.7 of the link and 20
// us.
class InventedProfiles {
 public:
  explicit InventedProfiles(const std::string& name)
      : folder(std::filesystem::temp_directory_path() / ("orrery_fit_" + name)) {
    std::filesystem::remove_all(folder);
    std::filesystem::create_directories(folder / "in");
    write_gemms();
    write_kernels();
    write_collectives();
    std::ofstream(folder / "in/nic_ratio.csv") << simai();
    std::ofstream(folder / "in/ata_ratio.csv") << simai();
    write_training_kernels();
  }
  ~InventedProfiles() { std::filesystem::remove_all(folder); }

  [[nodiscard]] FitOptions options(const std::string& output) const {
    return {.profiles = {(folder / "in").string()}, .output = (folder / output).string()};
  }

  std::filesystem::path folder;

 private:
  void write_gemms() const {
    std::ofstream table(folder / "in/gemm_long.csv");
    table << "source,gpu,dtype,op,model,tp,batch,M,N,K,time_us,direction,tflops\n";
    for (int m = 256; m <= 4096; m += 64) {
      for (const int n : {2048, 4096, 8192}) {
        for (const int k : {2048, 4096}) {
          const double flops = 2.0 * m * n * k;
          const std::string shape =
              std::to_string(m) + "," + std::to_string(n) + "," + std::to_string(k) + ",";
          table << "own,A100,bf16,up,model" << n << ",1,1," << shape << flops / 312e6 / 0.6 << ",fwd,\n";
          table << "own,A100,fp32,up,model" << n << ",1,1," << shape << flops / 19.5e6 / 0.5 << ",fwd,\n";
        }
      }
    }
  }
  void write_kernels() const {
    std::ofstream table(folder / "in/kernels_long.csv");
    table << "source,gpu,model,op,bytes,time_us\n";
    for (int i = 0; i < 100; ++i) {
      const double bytes = 1e5 * std::pow(1.1, i);
      for (const char* op : {"norm", "residual"}) {
        table << "own,A100,m" << i % 3 << "," << op << "," << bytes << "," << 3 + bytes / 2039e3 / 0.5
              << "\n";
      }
    }
  }
  void write_collectives() const {
    std::ofstream table(folder / "in/collectives_long.csv");
    table << "source,system,collective,n_ranks,ranks_per_node,bytes,time_us,status,link_GBps\n";
    for (int i = 0; i < 80; ++i) {
      const double bytes = 1e5 * std::pow(1.12, i);
      table << "own,mine,all_reduce,8,8," << bytes << "," << 20 + 1.75 * bytes / 300e3 / 0.7 << ",ok,300\n";
      table << "own,mine,send_recv,2,2," << bytes << "," << 10 + bytes / 300e3 / 0.9 << ",ok,300\n";
      table << "own,mine,all_reduce,8,8," << bytes << ",10000000,sentinel,300\n";
    }
  }
  static std::string simai() {
    std::ostringstream table;
    table << "Size,1 Node(NVLinkx),2Node-16GPU(NIC ),4Node-32GPU(NIC),8Node-64GPU(NIC),16,32,64,128\n";
    for (int i = 24; i < 34; ++i) table << (1LL << i) << ",0.5,0.9,0.9,0.9,0.9,0.9,0.9,0.9\n";
    return table.str();
  }
  void write_training_kernels() const {
    std::ofstream table(folder / "in/transformer_ops_fwd_bwd_long.csv");
    table << "source,gpu,dtype,model,mbs,tp,algo,op,fwd_us,bwd_us,input_MB,output_MB,weights_MB,activations_"
             "MB,fwd_reserved_MB,"
             "bwd_reserved_MB,status\n";
    for (int i = 0; i < 80; ++i) {
      const double mebibytes = 60 + 10 * i;
      table << "own,A100,fp16,gpt,1,1,0,enc-1st-layernorm," << 2 * mebibytes * 1048576 / 2039e3 / 0.6 << ",0,"
            << mebibytes << ",0,0,0,0,0,ok\n";
    }
  }
};

// Of the table that `orrery profile` writes.
inline constexpr const char* kOwnHeader =
    "gpu,dtype,family,op,pass,model,batch,M,N,K,heads,kv_heads,head_dim,query,keys,causal,bytes,ranks,"
    "ranks_per_node,time_us,p10_us,p90_us,repetitions,clock,status,script\n";

}  // namespace orrery::test

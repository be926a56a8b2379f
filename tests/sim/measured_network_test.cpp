// Networks of published runs, however people write them.
#include "sim/measured/measured_network.hpp"

#include <set>

#include "platforms/gpu.hpp"
#include "platforms/instance.hpp"
#include "sim/measured/measured_plan.hpp"
#include "tests/catch.hpp"
#include "tests/platforms/input_error.hpp"
#include "tests/sim/measured_rows.hpp"

namespace orrery {

using test::gpt;
using test::mapped;
using test::runs_of;

TEST_CASE("one InfiniBand card a node and Omni-Path slow collectives and not the card, one of Ethernet all") {
  const auto plan_over = [](const std::string& network) {
    std::string row = gpt("a", "2,4,2,1,2", "full,1.5,,ok");
    const std::string said = "8x200 Gbps per node";
    return mapped(runs_of(row.replace(row.find(said), said.size(), network)).front());
  };
  const MeasuredPlan own = plan_over("8x200 Gbps InfiniBand per node");
  CHECK(own.stack.network.collectives == 1.0);
  // What each of eight cards of a DGX A100 has.
  CHECK(plan_over("200 Gb/s HDR InfiniBand").cluster == own.cluster);
  CHECK(plan_over("200 Gb/s InfiniBand per node").cluster.groups.front().nics_per_node == 1);
  const MeasuredPlan shared = plan_over("InfiniBand 100 Gb/s");
  CHECK(shared.cluster.groups.front().nic.bandwidth == gigabits_per_second(100));
  // 6 GB/s, where the cost models expect 0.85 of 12.5 GB/s.
  CHECK(shared.stack.network.collectives == Approx(6 / (0.85 * 12.5)));
  CHECK(plan_over("InfiniBand 40 Gb/s").stack.network.collectives == 1.0);            // 0.85 of 5 GB/s
  CHECK(plan_over("InfiniBand 200 Gb/s per node").stack.network.collectives == 1.0);  // measured by nobody
  // 40.6 Gb/s of a node, where the cost models expect 0.85 of its four cards.
  const MeasuredPlan omni_path = plan_over("4x100 Gbps Omni-Path per node");
  CHECK(omni_path.cluster.groups.front().nic.bandwidth == gigabits_per_second(100));
  CHECK(omni_path.cluster.groups.front().nics_per_node == 4);
  CHECK(omni_path.stack.network.collectives == Approx(40.6 / (0.85 * 400)));
  // No node has as many cards: the usual network of the GPU stands.
  for (const char* odd : {"0x200 Gbps", "99999999999999x200 Gbps", "8x99999999999999 Gbps"})
    CHECK(plan_over(odd).cluster.groups.front().nic.bandwidth == gigabits_per_second(200));
  const MeasuredPlan ethernet = plan_over("50 Gbps Ethernet");
  CHECK(ethernet.stack.network.collectives == 1.0);
  CHECK(ethernet.cluster.groups.front().nic.bandwidth.value() ==
        Approx(5e9 / 0.85));  // what sockets get through
  CHECK(plan_over("10 Gbps Ethernet").cluster.groups.front().nic.bandwidth.value() ==
        Approx(10e9 / 8 * 0.92 / 0.85));
  CHECK(plan_over("1x200 Gbps").cluster.groups.front().nic.bandwidth == gigabits_per_second(200));  // RDMA
}

TEST_CASE("superchips draw less where four share a node") {
  const auto card = [](const char* per_node) {
    const auto runs = parse_measured_runs(
        "id,source_key,gpu,gpus_per_node,n_gpus,framework,seq,gbs,tp,pp,model,iter_time_s\na,g,GH200," +
            std::string(per_node) + ",4,Megatron-LM,2048,64,1,1,llama2-7b,100\n",
        "t.csv");
    return mapped(runs.front()).cluster.groups.front().gpu;
  };
  CHECK(card("4").power_limit == Watts(680));
  CHECK_FALSE(card("1").power_limit.has_value());
}

TEST_CASE("a row may say what limit the owner set to a card's power") {
  const auto limit = [](const std::string& note) {
    const auto runs = parse_measured_runs(
        "id,source_key,gpu,gpus_per_node,n_gpus,framework,seq,gbs,tp,pp,model,iter_time_s,note\na,g,RTX "
        "3090,2,2,"
        "PyTorch,2048,64,1,1,llama2-7b,100," +
            note + "\n",
        "t.csv");
    return mapped(runs.front()).cluster.groups.front().gpu.power_limit;
  };
  for (const char* note : {"power cap 240 W; eager", "Power limited to 240W", "a 240 W power cap"})
    CHECK(limit(note) == Watts(240));
  CHECK_FALSE(limit("power cap 400 W").has_value());  // its data sheet's 350 W are less
  CHECK_FALSE(limit("it drew 240 W").has_value());
}

TEST_CASE("nodes of four superchips have a card of 200 Gb/s for each, as Alps, JUPITER and Isambard-AI do") {
  const SaidNetwork four = reference_network(find_gpu("GH200-quad", "test"), 4);
  CHECK(four.nics == 4);
  CHECK(four.gigabits == 200);
}

TEST_CASE("a network is read however people write it") {
  const SaidNetwork usual{8, 400};
  const auto read = [&](const std::string& text) {
    const auto said = said_network(text, 8, usual);
    return said ? std::to_string(said->nics) + " x " + std::to_string(std::lround(said->gigabits)) : "none";
  };
  for (const char* eight : {"8x400 Gb/s",
                            "8 x 400 Gb/s a node",
                            "8 \u00d7 400 Gbps per node",
                            "8x ConnectX-7 400Gb/s",
                            "8 NICs of 400 Gbit/s",
                            "8 Broadcom 400 Gbps RoCE NICs a node (RDMA)",
                            "400 Gb/s per GPU",
                            "400 Gb/s/GPU",
                            "400Gb/s RoCE per card",
                            "3200 Gb/s EFA a node",
                            "3.2 Tbps per node",
                            "EFA 3200 Gb/s each node",
                            "InfiniBand NDR 400 Gb/s",
                            "400 Gbps x 8",
                            "400Gbps x8 InfiniBand",
                            "8*400Gbps",
                            "eight 400 Gbps NICs",
                            "8 NDR 400 Gb/s adapters",
                            "Eight NICs of 400 Gb/s",
                            "8x400G IB",
                            "8 x 400 gbps",
                            "NDR InfiniBand",
                            "8x NDR",
                            "8x 50 GB/s",
                            "50 GB/s per GPU",
                            "NVLink 900 GB/s intra, 8x400G",
                            "RoCE 400G",
                            "InfiniBand NDR400",
                            "8x NDR InfiniBand, 400 Gb/s each, per node",
                            "8x NDR InfiniBand (400 Gb/s each) per node",
                            "8x H100, 8 NDR InfiniBand NICs at 400 Gb/s each",
                            "8 x ConnectX-7 InfiniBand per node",
                            "ConnectX-7",
                            "eight CX-7 NICs per node",
                            "600 Gbps NVLink; 8x400 Gbps RoCE",
                            "NVLink intra-node; InfiniBand NDR",
                            "NVLink intra; 400 Gb/s RDMA per GPU"})
    CHECK(eight + (": " + read(eight)) == eight + std::string(": 8 x 400"));
  CHECK(read("4 x 200 Gb/s a node") == "4 x 200");
  CHECK(read("TCP over eth0, 40 Gb/s per node; nccl-tests 0.64 GB/s a GPU") == "1 x 40");
  CHECK(read("4 p5en.48xlarge, NVLink intra, 16x EFAv3 (200 Gb/s) NICs a node inter") == "16 x 200");
  CHECK(read("800 Gb/s RDMA a node") == "8 x 100");
  CHECK(read("10 Gbps inter / 170 Gbps NVLink intra") == "1 x 10");
  for (const char* ethernet :
       {"100GbE", "100Gb Ethernet", "100 Gb/s Ethernet", "100 gigabit ethernet", "100G Ethernet"})
    CHECK(std::pair(ethernet, read(ethernet)) == std::pair(ethernet, std::string("1 x 100")));
  CHECK(read("10Gb Ethernet") == "1 x 10");
  CHECK(read("100 Gb/s x 16 nodes") == "1 x 100");
  CHECK(read("2 nodes, 100 Gb/s cards") == "1 x 100");
  // The most that the card's data sheet has.
  CHECK(read("4 x ConnectX-6 InfiniBand per node") == "4 x 200");
  CHECK(read("ConnectX-6 at 100 Gb/s") == "1 x 100");
  CHECK(read("ConnectX-6 Lx") == "none");
  CHECK(read("InfiniBand 200 Gb/s") == "1 x 200");  // not what the reference machine has
  // No card has so much: of all of a node.
  CHECK(read("3200 Gbps") == "8 x 400");
  CHECK(read("1.6 Tb/s InfiniBand") == "8 x 200");
  CHECK(read("0 x 400 Gb/s") == "none");
  CHECK(read("1e9 Gb/s") == "none");
  CHECK(read("NVSwitch 450 GB/s") == "none");
  for (const char* remote :
       {"RDMA", "8x400 RoCE", "IB", "EFAv2", "HDR", "Slingshot-11", "CX-7", "ConnectX-6"})
    CHECK(says_remote_memory(remote));
  for (const char* not_remote : {"Ethernet", "100 Gb/s", "distributed", "TCP"})
    CHECK(!says_remote_memory(not_remote));
}

TEST_CASE("a rate below zero leaves its run out, and a hyphen between words makes none") {
  for (const char* below :
       {"-400 Gbps", "8x-400 Gbps", "8 x -400 Gb/s", "NVLink intra; \u2212100 Gb/s", "(-3.2 Tbps)"}) {
    std::string row = gpt("a", "2,4,2,1,2", "full,1.5,,ok");
    const std::string said = "8x200 Gbps per node";
    row.replace(row.find(said), said.size(), below);
    INFO(below);
    CHECK(contains(test::unmapped(runs_of(row).front()), "expected rates above zero"));
  }
  CHECK(negative_rate("8 x -400 Gb/s") == "-400 Gb/s");
  for (const char* joined :
       {"HDR-200 Gb/s", "100-200 Gb/s", "InfiniBand - 400 Gb/s", "NDR (2x)-400 Gb/s", ""})
    CHECK_FALSE(negative_rate(joined));
}

TEST_CASE("a rate inside a node is read where it is one of a link, in bits") {
  CHECK(said_inside("10 Gbps inter / 170 Gbps NVLink intra") == 170);
  CHECK(said_inside("50 Gb/s PCIe intra-node; 10 Gb/s") == 50);
  for (const char* silent :
       {"NVLink intra; 400 Gb/s RDMA per GPU", "600 GB/s NVLink intra", "8x400 Gb/s", ""})
    CHECK_FALSE(said_inside(silent));
  std::string row = gpt("a", "2,4,2,1,2", "full,1.5,,ok");
  const std::string said = "8x200 Gbps per node";
  row.replace(row.find(said), said.size(), "10 Gbps inter / 170 Gbps NVLink intra");
  const NodeGroup group = mapped(runs_of(row).front()).cluster.groups.front();
  CHECK(group.gpu_link.bandwidth == gigabits_per_second(170));
  CHECK(group.nics_per_node == 1);
}

TEST_CASE("a network that is only named is as fast as its generation, and Ethernet may be one card") {
  const SaidNetwork usual{8, 400};
  const auto rate = [&](const std::string& text) {
    return std::lround(said_network(text, 8, usual)->gigabits);
  };
  CHECK(rate("HDR InfiniBand") == 200);
  CHECK(rate("InfiniBand EDR") == 100);
  CHECK(rate("FDR InfiniBand") == 56);
  CHECK(rate("HDR100 InfiniBand") == 100);
  CHECK(rate("Slingshot-11") == 200);
  CHECK(rate("1 x 12.5 GB/s") == 100);
  CHECK_FALSE(said_network("NVLink 600 GB/s intra; InfiniBand", 8, usual));
  const GpuSpec& h100 = find_gpu("H100", "test");
  CHECK(possible_networks(h100, 8, "Ethernet").size() == possible_networks(h100, 8).size() + 1);
  CHECK(possible_networks(h100, 8, "RoCE Ethernet").size() == possible_networks(h100, 8).size());
}

TEST_CASE("numbers of links inside a node say nothing of what is between nodes") {
  for (const char* inside :
       {"NVLink 400 GB/s intra", "NVLink3 600 GB/s; InfiniBand", "PCIe 4.0 x16", "InfiniBand"})
    CHECK_FALSE(says_numbers_between_nodes(inside));
  for (const char* between : {"NVLink 600 GB/s intra; 25 GB/s inter", "8 rails", "EFA v2"})
    CHECK(says_numbers_between_nodes(between));
}

TEST_CASE("a network that nobody tells is one of those that machines with the GPU have") {
  using Rates = std::vector<std::pair<int, double>>;
  const auto networks = [](const std::string& gpu, int gpus_per_node) {
    Rates rates;
    for (const SaidNetwork& one : possible_networks(find_gpu(gpu, "test"), gpus_per_node))
      rates.emplace_back(one.nics, one.gigabits);
    return rates;
  };
  CHECK(networks("A100-SXM4-80GB", 8) == Rates{{8, 200}, {4, 100}});     // DGX A100; p4de.24xlarge
  CHECK(networks("A100-SXM4-80GB", 4) == Rates{{4, 200}});               // as many cards for a GPU
  CHECK(networks("H100-SXM5-80GB", 8) == Rates{{8, 400}});               // whoever rents it
  CHECK(networks("V100-SXM2-16GB", 8) == Rates{{4, 100}, {1, 25}});      // DGX-1; p3.16xlarge
  CHECK(networks("V100-SXM2-32GB", 16).front() == std::pair(8, 100.0));  // DGX-2
  CHECK(networks("RTX 3090", 4) == Rates{{1, 100}, {1, 10}});            // nobody rents it
  for (const InstanceSpec& machine : instance_catalog()) {
    if (!machine.network) continue;
    std::set<double> rates;
    for (const auto& [nics, gigabits] : networks(machine.gpu, machine.gpus)) rates.insert(nics * gigabits);
    const double own = *machine.network / gigabits_per_second(1);
    CHECK(*rates.begin() <= own * (1 + 1e-9));
    CHECK(own <= *rates.rbegin() * (1 + 1e-9));
  }
}

TEST_CASE("only what a row leaves open of its network is open") {
  const auto count = [](const std::string& network, const std::string& machine) {
    std::string row = gpt("a", "2,4,2,1,2", "full,1.5,,ok," + machine);
    const std::string said = "8x200 Gbps per node";
    return mapped(runs_of(row.replace(row.find(said), said.size(), network), ",cluster_desc").front())
        .networks.size();
  };
  CHECK(count("", "") == 2);
  CHECK(count("fast", "a cloud") == 2);
  CHECK(count("4x100 Gb/s EFA", "") == 1);
  CHECK(count("InfiniBand", "") == 1);
  CHECK(count("", "DGX A100") == 1);
  CHECK(count("NVSwitch (DGX A100)", "") == 1);
}

TEST_CASE("a rack's cards are counted by trays of four where nobody says how many GPUs a node has") {
  const auto cards = [](const std::string& row) {
    const auto runs = parse_measured_runs(
        "id,source_key,gpu,n_gpus,gpus_per_node,interconnect,framework,model,gbs,tp,pp\na,g,GB200,288," +
            row + ",Megatron-Core,llama2-70b,288,2,1\n",
        "made-up.csv");
    return mapped(runs.front()).cluster.groups.front().nics_per_node;
  };
  // 64 of its GPUs are taken, a card each.
  CHECK(cards("4,4 x 400 Gb/s") == 64);
  CHECK(cards(",4 x 400 Gb/s") == 64);
  CHECK(cards(",") == 64);
}

TEST_CASE("cards that a bridge could join reach each other over PCIe where a row says so") {
  const auto link = [](const std::string& gpu, const std::string& said) {
    const auto runs = parse_measured_runs(
        "id,source_key,gpu,n_gpus,gpus_per_node,interconnect,framework,model,seq,gbs,mbs,tp,pp\na,g," + gpu +
            ",2,2,\"" + said + "\",Hugging Face Trainer,gpt2-345m,512,8,4,1,1\n",
        "made-up.csv");
    return mapped(runs.front()).cluster.groups.front().gpu_link.bandwidth;
  };
  const auto bridge = find_gpu("RTX 3090", "test").link_bandwidth;
  for (const char* said : {"", "NVLink", "NVLink (PCIe host)", "NVLink (NV4), 52.8 GB/s measured one way"})
    CHECK(link("RTX 3090", said) == bridge);
  for (const char* said :
       {"PCIe", "PCIe (NVLink disabled)", "PCIe, no NVLink", "PCIe 4.0 x8 (NCCL_P2P_DISABLE=1)"})
    CHECK(link("RTX 3090", said) < bridge / 2);
  CHECK(link("A100", "PCIe 4.0 host, NVLink") == find_gpu("A100-SXM4-80GB", "test").link_bandwidth);
}

}  // namespace orrery

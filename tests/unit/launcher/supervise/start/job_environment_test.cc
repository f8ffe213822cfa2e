#include "launcher/supervise/start/job_environment.h"

#include <doctest/doctest.h>

using namespace hvd::launcher;
using Variables = std::vector<std::string>;

TEST_CASE("own environment: outside of a rank nothing is taken away") {
  const Variables lines{"PATH=/bin", "OMPI_MCA_btl=tcp,self", "PMIX_MCA_gds=hash", "HVD_HOST=a"};
  CHECK(job_environment(lines) == lines);
}

TEST_CASE("own environment: inside a rank, what its launcher told it is") {
  CHECK(job_environment({"PATH=/bin", "OMPI_COMM_WORLD_RANK=0", "OMPI_MCA_orte_hnp_uri=1.0;tcp://127.0.0.1:1",
                         "PMIX_NAMESPACE=7", "OPAL_PREFIX=/opt/mpi", "HVD_LINK_FD=16", "HVD_RANK=0", "HVD_GRACE=3",
                         "HOROVOD_TIMELINE=t.json", "RANK=0", "MASTER_PORT=29500", "HOROVOD_RANK=0",
                         "HOROVOD_ELASTIC=1", "HVD_ELASTIC_LATE=1", "HVD_PROGRAMS=1,1"}) ==
        Variables{"PATH=/bin", "OPAL_PREFIX=/opt/mpi", "HVD_GRACE=3", "HOROVOD_TIMELINE=t.json"});
}

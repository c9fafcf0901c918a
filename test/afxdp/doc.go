// Package afxdp holds the stories of the data path on real AF_XDP ports: soft
// RDMA endpoints in network namespaces around a switch that is opened as the
// daemon opens it, without the daemon.
package afxdp

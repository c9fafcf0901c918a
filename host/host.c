/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "internal.h"

enum {
	/* As perftest has them: 67 ms, and for ever, which give_up_ms bounds. */
	ACK_TIMEOUT = 14,
	RETRIES = 7,
	RNR_TIMER = 12,
	HOP_LIMIT = 64,
	CONNECT_AGAIN_US = 10000,
	ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
};

int check_process(const struct rocast *host)
{
	if (host->process == getpid())
		return ROCAST_OK;
	return fail(ROCAST_EFORKED, "process %d has opened this, and process %d is its child; open the device again there",
		    (int)host->process, (int)getpid());
}

/* The address from which packets to the box leave. */
static bool local_address(const union address *box, union address *local)
{
	socklen_t size = sizeof(*local);
	int fd = socket(box->any.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	bool found;

	if (fd < 0)
		return false;
	memset(local, 0, sizeof(*local));
	found = connect(fd, &box->any, address_bytes(box)) == 0 && getsockname(fd, &local->any, &size) == 0;
	close(fd);
	return found;
}

static void gid_of(const union address *address, union ibv_gid *gid)
{
	memset(gid, 0, sizeof(*gid));
	if (address->any.sa_family == AF_INET6) {
		memcpy(gid->raw, &address->v6.sin6_addr, sizeof(gid->raw));
		return;
	}
	gid->raw[10] = gid->raw[11] = 0xff;
	memcpy(gid->raw + 12, &address->v4.sin_addr, 4);
}

/* Looks for the host's address among the GIDs of RoCEv2 of a device. */
static bool find_gid(struct rocast *host, struct ibv_context *device)
{
	struct ibv_device_attr attributes;
	union ibv_gid wanted;

	gid_of(&host->local, &wanted);
	if (ibv_query_device(device, &attributes))
		return false;
	for (uint8_t port = 1; port <= attributes.phys_port_cnt; port++) {
		if (ibv_query_port(device, port, &host->port) || host->port.link_layer != IBV_LINK_LAYER_ETHERNET)
			continue;
		for (int i = 0; i < host->port.gid_tbl_len; i++) {
			struct ibv_gid_entry entry;

			if (ibv_query_gid_ex(device, port, (uint32_t)i, &entry, 0) == 0 && entry.gid_type == IBV_GID_TYPE_ROCE_V2 &&
			    memcmp(&entry.gid, &wanted, sizeof(wanted)) == 0) {
				host->port_number = port;
				host->gid_index = i;
				host->max_cqe = (unsigned)attributes.max_cqe;
				return true;
			}
		}
	}
	return false;
}

static int open_device(struct rocast *host, const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	char address[ADDRESS_TEXT];

	for (struct ibv_device **d = list; d && *d && !host->device; d++) {
		if (name && strcmp(ibv_get_device_name(*d), name) != 0)
			continue;
		host->device = ibv_open_device(*d);
		if (host->device && !find_gid(host, host->device)) {
			ibv_close_device(host->device);
			host->device = NULL;
		}
	}
	if (list)
		ibv_free_device_list(list);
	if (host->device && (host->pd = ibv_alloc_pd(host->device)))
		return ROCAST_OK;
	address_text(&host->local, address);
	return fail(ROCAST_EDEVICE, "no RDMA device%s%s has a RoCEv2 GID for %s; rdma link shows the devices, and ibv_devinfo -v their GIDs",
		    name ? " " : "", name ? name : "", address);
}

static int configure(struct rocast *host, const struct rocast_settings *settings)
{
	const char *box = settings->box ? settings->box : getenv("ROCAST_BOX");
	const char *address = settings->address ? settings->address : getenv("ROCAST_ADDRESS");
	char found[ADDRESS_TEXT];

	host->patience_ms = settings->patience_ms ? settings->patience_ms : DEFAULT_PATIENCE;
	if (!box && !find_box(&host->box))
		return fail(ROCAST_EARGUMENT, "the box is not named, and DNS names none that has an address, by a record _rocast._tcp of type SRV; write ADDRESS:PORT as "
			    "listen of hosts: in its rocastd.yaml says, also into ROCAST_BOX");
	if (box && !parse_endpoint(box, &host->box))
		return fail(ROCAST_EARGUMENT, "the box is \"%s\"; write ADDRESS:PORT as listen of hosts: in its rocastd.yaml says, also into ROCAST_BOX", box);
	if (!box) {
		address_text(&host->box, found);
		box = found;
	}
	if (address) {
		if (!parse_ip(address, &host->local))
			return fail(ROCAST_EARGUMENT, "\"%s\" is no IP address; write that of this host, also into ROCAST_ADDRESS", address);
	} else if (!local_address(&host->box, &host->local)) {
		return fail(ROCAST_EBOX, "no route leads to the box %s (%s); the box needs an address in the network of its hosts", box, strerror(errno));
	}
	if (host->local.any.sa_family != host->box.any.sa_family)
		return fail(ROCAST_EARGUMENT, "the box %s and this host's address %s are of two families; write two of the same", box, address);
	set_port(&host->local, 0);
	return ROCAST_OK;
}

int rocast_set_secret(struct rocast *host, const char *secret)
{
	static const char may[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.+/=";

	if (!secret)
		secret = "";
	if (strlen(secret) >= SECRET_BYTES || secret[strspn(secret, may)])
		return fail(ROCAST_EARGUMENT, "a secret has up to %d letters, digits and characters of -_.+/=; write such a one, also into ROCAST_SECRET", SECRET_BYTES - 1);
	memset(host->secret, 0, sizeof(host->secret));
	memcpy(host->secret, secret, strlen(secret));
	return ROCAST_OK;
}

int rocast_set_policy(struct rocast *host, const char *policy)
{
	static const char may[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-=,. ";

	if (!policy)
		policy = "";
	if (strlen(policy) >= POLICY_BYTES || policy[strspn(policy, may)])
		return fail(ROCAST_EARGUMENT, "a policy is KEY=VALUE,... of up to %d letters, digits, spaces and characters of -=,. with the keys of a group file; "
			    "write such a one, also into ROCAST_POLICY", POLICY_BYTES - 1);
	memset(host->policy, 0, sizeof(host->policy));
	memcpy(host->policy, policy, strlen(policy));
	return ROCAST_OK;
}

int rocast_set_traffic_class(struct rocast *host, unsigned traffic_class)
{
	if (traffic_class > UINT8_MAX)
		return fail(ROCAST_EARGUMENT, "a traffic class is 0 to 255, and not %u", traffic_class);
	host->traffic_class = (uint8_t)traffic_class;
	return ROCAST_OK;
}

static int read_traffic_class(struct rocast *host)
{
	const char *text = getenv("ROCAST_TRAFFIC_CLASS");
	char *end;
	unsigned long value;

	if (!text)
		return ROCAST_OK;
	value = strtoul(text, &end, 0);
	if (end == text || *end || value > UINT8_MAX)
		return fail(ROCAST_EARGUMENT, "ROCAST_TRAFFIC_CLASS is \"%s\"; write a number from 0 to 255, which is four times the DSCP", text);
	return rocast_set_traffic_class(host, (unsigned)value);
}

int rocast_open(const struct rocast_settings *settings, struct rocast **opened)
{
	static const struct rocast_settings none;
	struct rocast *host = calloc(1, sizeof(*host));
	int error;

	*opened = NULL;
	if (!host)
		return fail(ROCAST_EMEMORY, "no memory");
	host->process = getpid();
	if (!settings)
		settings = &none;
	(void)ibv_fork_init(); /* where it fails, memory was registered before, and the program has decided */
	if ((error = configure(host, settings)) || (error = rocast_set_secret(host, getenv("ROCAST_SECRET"))) ||
	    (error = rocast_set_policy(host, getenv("ROCAST_POLICY"))) || (error = read_traffic_class(host)) || (error = open_device(host, settings->device))) {
		rocast_close(host);
		return error;
	}
	*opened = host;
	return ROCAST_OK;
}

void rocast_close(struct rocast *host)
{
	if (!host || host->process != getpid())
		return;
	while (host->groups)
		rocast_leave(host->groups);
	while (host->memories)
		rocast_unregister(host->memories);
	if (host->pd)
		ibv_dealloc_pd(host->pd);
	if (host->device)
		ibv_close_device(host->device);
	free(host);
}

/* A device pins whole pages. */
static size_t pages_of(const void *address, size_t bytes)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), begin = (uintptr_t)address / page;

	return (((uintptr_t)address + bytes - 1) / page - begin + 1) * page;
}

/*
 * What the kernel holds against the limit of this program: also the queues of devices, and what
 * others in the program have registered. 0: it does not say.
 */
static size_t pinned_by_program(void)
{
	FILE *status = fopen("/proc/self/status", "re");
	unsigned long long pinned = 0;
	char line[256];

	if (!status)
		return 0;
	while (fgets(line, sizeof(line), status) && sscanf(line, "VmPin: %llu", &pinned) != 1)
		;
	fclose(status);
	return (size_t)pinned * 1024;
}

/*
 * Whether the limit keeps this program from locking so many bytes. The kernel is asked, because
 * root in a container may have the capability for more, and it may not count.
 */
static bool is_over_limit(size_t bytes)
{
	void *at = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_LOCKED, -1, 0);

	if (at != MAP_FAILED)
		munmap(at, bytes);
	return at == MAP_FAILED && (errno == EAGAIN || errno == EPERM);
}

static int registration_failed(const struct rocast *host, size_t bytes, size_t pages, bool read_only, int error)
{
	size_t pinned = pinned_by_program(), wanted;
	struct rlimit limit;

	wanted = (pinned > host->pinned ? pinned : host->pinned) + pages;
	if ((error == ENOMEM || error == EPERM) && getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && wanted > limit.rlim_cur && is_over_limit(wanted))
		return fail(ROCAST_EDEVICE, "%zu bytes cannot be registered: this program would have %zu KiB pinned, and may have %zu; write ulimit -l %zu before it, "
			    "or LimitMEMLOCK=%zuK into its unit", bytes, wanted / 1024, (size_t)limit.rlim_cur / 1024, wanted / 1024, wanted / 1024);
	if (error == EFAULT && read_only)
		return fail(ROCAST_EDEVICE, "%zu bytes cannot be registered to be read (%s): they are not all there, or the kernel pins no such memory that is "
			    "read-only; send from a copy", bytes, strerror(error));
	if (error == EFAULT)
		return fail(ROCAST_EDEVICE, "%zu bytes cannot be registered to be written (%s): they are not all there, or are read-only or of a file; "
			    "use other memory, or register them only to send from", bytes, strerror(error));
	return fail(ROCAST_EDEVICE, "%zu bytes cannot be registered (%s)", bytes, strerror(error));
}

static void keep(struct rocast *host, struct rocast_memory *memory)
{
	memory->host = host;
	memory->next = host->memories;
	host->memories = memory;
	host->pinned += memory->pinned;
}

static int register_memory(struct rocast *host, void *address, size_t bytes, bool read_only, struct rocast_memory **memory)
{
	struct rocast_memory *new;
	int error = check_process(host);

	*memory = NULL;
	if (error)
		return error;
	if (!address || bytes == 0)
		return fail(ROCAST_EARGUMENT, "there is no memory to register");
	if (!(new = calloc(1, sizeof(*new))))
		return fail(ROCAST_EMEMORY, "no memory");
	new->read_only = read_only;
	new->pinned = pages_of(address, bytes);
	if (!(new->mr = ibv_reg_mr(host->pd, address, bytes, read_only ? 0 : ACCESS))) {
		error = registration_failed(host, bytes, new->pinned, read_only, errno);
		free(new);
		return error;
	}
	keep(host, new);
	*memory = new;
	return ROCAST_OK;
}

int rocast_register(struct rocast *host, void *address, size_t bytes, struct rocast_memory **memory)
{
	return register_memory(host, address, bytes, false, memory);
}

int rocast_register_to_send(struct rocast *host, const void *address, size_t bytes, struct rocast_memory **memory)
{
	return register_memory(host, (void *)(uintptr_t)address, bytes, true, memory);
}

int rocast_register_dmabuf(struct rocast *host, int fd, uint64_t offset, size_t bytes, struct rocast_memory **memory)
{
	struct rocast_memory *new;
	int error = check_process(host);

	*memory = NULL;
	if (error)
		return error;
	if (bytes == 0)
		return fail(ROCAST_EARGUMENT, "there is no memory to register");
	if (!(new = calloc(1, sizeof(*new))))
		return fail(ROCAST_EMEMORY, "no memory");
	/* Its bytes have no address here, so they are named by their offset. */
	if (!(new->mr = ibv_reg_dmabuf_mr(host->pd, offset, bytes, offset, fd, ACCESS))) {
		error = errno;
		free(new);
		if (error == EOPNOTSUPP || error == ENOSYS)
			return fail(ROCAST_EDEVICE, "this device takes no memory of other devices (%s); copy the bytes into memory of the host", strerror(error));
		return fail(ROCAST_EDEVICE, "%zu bytes from %llu on of the dmabuf %d cannot be registered (%s)", bytes, (unsigned long long)offset, fd, strerror(error));
	}
	keep(host, new);
	*memory = new;
	return ROCAST_OK;
}

int rocast_unregister(struct rocast_memory *memory)
{
	struct rocast_memory **at;
	int error;

	if (!memory)
		return ROCAST_OK;
	if ((error = check_process(memory->host)))
		return error;
	if (memory->users > 0)
		return fail(ROCAST_EARGUMENT, "%u groups have this memory as a region; leave them first", memory->users);
	for (at = &memory->host->memories; *at != memory; at = &(*at)->next)
		;
	*at = memory->next;
	memory->host->pinned -= memory->pinned;
	error = ibv_dereg_mr(memory->mr);
	free(memory);
	return error ? fail(ROCAST_EDEVICE, "the memory cannot be unregistered (%s)", strerror(error)) : ROCAST_OK;
}

uint32_t random_psn(void)
{
	uint32_t psn = 0;

	(void)!getrandom(&psn, sizeof(psn), 0);
	return psn & MAX_PSN;
}

/* A queue pair in state INIT. */
struct ibv_qp *new_qp(struct rocast *host, struct ibv_cq *cq, struct ibv_srq *srq, unsigned sends)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq, .recv_cq = cq, .srq = srq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1,
		.cap = { .max_send_wr = sends, .max_recv_wr = srq ? 0 : 1, .max_send_sge = 1, .max_recv_sge = srq ? 0 : 1 },
	};
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = host->port_number, .qp_access_flags = ACCESS };
	struct ibv_qp *qp = ibv_create_qp(host->pd, &init);
	int error;

	if (!qp)
		return NULL;
	error = ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	if (!error)
		return qp;
	ibv_destroy_qp(qp);
	errno = error;
	return NULL;
}

static enum ibv_mtu mtu_code(unsigned bytes)
{
	enum ibv_mtu code = IBV_MTU_256;

	while (code < IBV_MTU_4096 && (128u << code) < bytes)
		code++;
	return code;
}

/*
 * Brings a queue pair to RTS. expects and sends are the first PSNs in each direction. The kernel
 * asks the network for the peer's MAC, and gives up after a second: the time in which it asks a
 * lost question again. So it is told to ask anew, until the deadline; with 0 it asks once.
 */
int connect_qp(struct rocast *host, struct ibv_qp *qp, const union address *peer, uint32_t peer_qpn, uint32_t expects,
	       uint32_t sends, unsigned mtu, int64_t deadline)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR, .path_mtu = mtu_code(mtu), .dest_qp_num = peer_qpn, .rq_psn = expects, .min_rnr_timer = RNR_TIMER,
		.ah_attr = { .is_global = 1, .port_num = host->port_number,
			     .grh = { .sgid_index = (uint8_t)host->gid_index, .hop_limit = HOP_LIMIT, .traffic_class = host->traffic_class } },
	};
	int error;

	gid_of(peer, &attr.ah_attr.grh.dgid);
	while ((error = ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				      IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)) == ETIMEDOUT && now_ms() < deadline)
		usleep(CONNECT_AGAIN_US);
	if (!error) {
		attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .sq_psn = sends, .timeout = ACK_TIMEOUT, .retry_cnt = RETRIES, .rnr_retry = RETRIES };
		error = ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
				      IBV_QP_MAX_QP_RD_ATOMIC);
	}
	if (error) {
		char text[ADDRESS_TEXT];

		address_text(peer, text);
		return fail(ROCAST_EDEVICE, "the queue pair cannot be connected to %s (%s); does a route lead there, and does it answer ARP?", text, strerror(error));
	}
	return ROCAST_OK;
}

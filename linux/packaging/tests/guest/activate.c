/* activate SOCKET PROGRAM ARG...: PROGRAM gets SOCKET as from systemd, for a kernel without file locks. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	char pid[16];
	int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);

	if (argc < 3 || strlen(argv[1]) >= sizeof(at.sun_path) || fd < 0)
		return 2;
	strcpy(at.sun_path, argv[1]);
	if (bind(fd, (struct sockaddr *)&at, sizeof(at)) || listen(fd, 16) || dup2(fd, 3) < 0) {
		perror(argv[1]);
		return 1;
	}
	snprintf(pid, sizeof(pid), "%d", getpid());
	setenv("LISTEN_FDS", "1", 1);
	setenv("LISTEN_PID", pid, 1);
	execvp(argv[2], argv + 2);
	perror(argv[2]);
	return 1;
}

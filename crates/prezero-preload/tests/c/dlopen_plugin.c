/* A plugin that frees what others allocated. The program has functions of the same names as the two last. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int plugin_frees_libcs(const char *path, size_t size)
{
	char *line = NULL, *text, *stream;
	size_t room = 0, length;
	FILE *file = fopen(path, "r");

	if (!file || getline(&line, &room, file) < 0 || asprintf(&text, "%*d", (int)size, 7) < 0)
		return 0;
	fclose(file);
	FILE *memory = open_memstream(&stream, &length);
	for (size_t i = 0; i < size; i++)
		fputc('x', memory);
	fclose(memory);
	char *copy = strdup(line);
	int good = strlen(copy) >= size && length == size && strlen(text) == size;
	free(line);
	free(text);
	free(stream);
	free(copy);
	return good;
}

void *plugin_mallocs(size_t size)
{
	return malloc(size);
}

void *plugin_reallocs(void *block, size_t size)
{
	return realloc(block, size);
}

/* Kept as an address, too. */
static void (*volatile kept)(void *) = free;

void plugin_frees(void *block)
{
	static int turn;

	if (turn++ % 2)
		kept(block);
	else
		free(block);
}

/* A deeply opened plugin opens another so. */
void *plugin_opens(const char *path, int flags)
{
	return dlopen(path, flags);
}

const char *whose(void)
{
	return "plugin";
}

const char *plugin_asks(void)
{
	return whose();
}

// Makes the compiler work: what it compiles is the C++ library's templates.
#include <algorithm>
#include <iostream>
#include <map>
#include <regex>
#include <string>
#include <vector>

int main(int, char **argv)
{
	std::regex pattern(argv[1]);
	std::string text(argv[2]);
	std::map<std::string, std::vector<double>> found;
	std::vector<std::pair<std::string, int>> pairs;

	std::sort(pairs.begin(), pairs.end());
	std::stable_sort(pairs.begin(), pairs.end());
	for (std::sregex_iterator at(text.begin(), text.end(), pattern), end; at != end; ++at)
		found[at->str()].push_back(at->position());
	std::cout << found.size() << "" << std::regex_replace(text, pattern, "x");
}

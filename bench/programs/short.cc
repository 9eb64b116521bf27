// short: what a compiler is given that is to end soon.
#include <algorithm>
#include <map>
#include <string>
#include <vector>

int main()
{
	std::map<std::string, std::vector<int>> lists;

	lists["a"].push_back(1);
	std::sort(lists["a"].begin(), lists["a"].end());
	return lists.size();
}

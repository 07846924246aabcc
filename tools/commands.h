// The subcommands. Each adds itself to the command line; what it returns is called when the user
// asked for it and gives the exit code: 0 done, 1 a result is wrong (2, an error, is main's).
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace catamount::tools {

using Command = std::function<int()>;

Command add_run(CLI::App& app);
Command add_verify(CLI::App& app);
Command add_info(CLI::App& app);

}  // namespace catamount::tools

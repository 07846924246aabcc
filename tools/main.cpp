// catamount: the command line. Errors are one line on stderr and exit code 2.
#include <fmt/core.h>

#include <cstdio>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "catamount/error.h"
#include "catamount/version.h"
#include "commands.h"

namespace {

// Bytes of the UTF-8 character that starts at text[i]; 0: there is none.
std::size_t utf8_length(const std::string& text, std::size_t i) {
  const auto lead = static_cast<unsigned char>(text[i]);
  const std::size_t length = lead < 0x80                   ? 1
                             : lead >= 0xc2 && lead < 0xe0 ? 2
                             : lead >= 0xe0 && lead < 0xf0 ? 3
                             : lead >= 0xf0 && lead < 0xf5 ? 4
                                                           : 0;
  if (i + length > text.size()) return 0;
  for (std::size_t k = 1; k < length; ++k) {
    if ((static_cast<unsigned char>(text[i + k]) & 0xc0) != 0x80) return 0;
  }
  return length;
}

// CLI11 and the standard library may say it in several lines, and what comes from a broken file
// may be no text at all.
std::string one_line(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  std::string line;
  for (std::size_t i = 0; i < text.size();) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const std::size_t length = byte < 0x20 || byte == 0x7f ? 0 : utf8_length(text, i);
    if (length > 0) {
      line += text.substr(i, length);
      i += length;
      continue;
    }
    line += byte == '\n' ? " " : fmt::format("\\x{:02x}", byte);
    ++i;
  }
  return line;
}

bool has_command(const CLI::App& app, const std::string& name) {
  for (const CLI::App* sub : app.get_subcommands({})) {
    if (sub->get_name() == name) return true;
  }
  return false;
}

int report(const std::string& message) {
  fmt::print(stderr, "catamount: error: {}\n", one_line(message));
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace catamount;
  CLI::App app{"A mixture-of-experts layer with expert parallelism inside."};
  app.set_version_flag("--version", std::string("catamount ") + kVersion);
  app.require_subcommand(1);
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app.footer("Start with `catamount run`; `catamount COMMAND --help` explains a command.");
  try {
    std::vector<std::pair<const char*, tools::Command>> commands;
    commands.emplace_back("run", tools::add_run(app));
    commands.emplace_back("verify", tools::add_verify(app));
    commands.emplace_back("info", tools::add_info(app));
    if (argc > 1 && argv[1][0] != '-' && !has_command(app, argv[1])) {
      return report(
          fmt::format("there is no command \"{}\": expected run, verify or info", argv[1]));
    }
    try {
      app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
      if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
      return report(error.what());
    }
    for (const auto& [name, command] : commands) {
      if (!app.got_subcommand(name)) continue;
      const int code = command();
      if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
        return report("the output could not be written");
      }
      return code;
    }
  } catch (const std::exception& error) {
    return report(error.what());
  }
  return 2;
}

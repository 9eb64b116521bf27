//! The daemon `prezerod`; see the library for what it does.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use clap_complete::Shell;
use prezerod::filler::{self, Binding, Priority};
use prezerod::inode::named::LeaseDir;
use prezerod::server::{self, Options, Server, rights};
use prezerod::settings::Settings;

/// Keeps zeroed, populated huge pages ready, and leases them to programs that start.
#[derive(Parser)]
#[command(
    name = "prezerod",
    version,
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n\
    prezerod &                                    for yourself: no root, no configuration\n\
    prezerod --check /etc/prezero/prezerod.toml   is it good?\n\
    prezerod --config /etc/prezero/prezerod.toml  as the service does"
)]
struct Command {
    /// Configuration, TOML; without it the invoking user is served.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Socket for clients [the run-time directory's prezero/prezerod.sock].
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Check a configuration and end.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["config", "socket"])]
    check: Option<PathBuf>,
    #[command(subcommand)]
    process: Option<Process>,
}

/// What the daemon starts by itself, and what packages do.
#[derive(clap::Subcommand)]
enum Process {
    /// Writes shell completions below a folder as /usr/local/share.
    #[command(hide = true)]
    Generate { folder: PathBuf },
    /// Closes descriptors that clients sent: those that come over standard input.
    #[command(hide = true)]
    CloseFds,
    /// Populates inodes for the broker at standard input.
    #[command(hide = true)]
    Filler {
        node: u16,
        #[arg(long)]
        urgent: bool,
        #[arg(long)]
        bind: bool,
        #[arg(long)]
        cgroup: Option<String>,
        #[arg(long)]
        files: Vec<PathBuf>,
    },
}

fn main() -> ExitCode {
    // With it a file beyond `ulimit -f` is an error that can be told, and not the end.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Default::default());
    let command = match Command::try_parse() {
        Ok(command) => command,
        Err(error) if !error.use_stderr() => error.exit(),
        Err(error) => return refuse(&error),
    };
    if let Some(Process::Generate { folder }) = &command.process {
        return end(completions(folder).map_err(|error| format!("generate: {error}")));
    }
    if let Some(Process::CloseFds) = command.process {
        return end(rights::close_all().map_err(|error| format!("close-fds: {error}")));
    }
    if let Some(Process::Filler { node, urgent, bind, cgroup, files }) = command.process {
        let priority = if urgent { Priority::Urgent } else { Priority::Idle };
        let binding = if bind { Binding::Node } else { Binding::None };
        let ended = filler::run(priority, node, binding, cgroup.as_deref(), files);
        return end(ended.map_err(|error| format!("filler: {error}")));
    }
    if let Some(path) = command.check {
        return end(check(&path));
    }
    let options = Options {
        config: command.config,
        socket: command.socket,
        // Stays the same program when the file is replaced by a newer one.
        program: "/proc/self/exe".into(),
    };
    end(Server::start(options).and_then(|server| server.run().map_err(|error| error.to_string())))
}

/// Whether a configuration is good, by itself and on this host.
fn check(path: &Path) -> Result<(), String> {
    let settings = Settings::read(path)?;
    let (stock, place) = (settings.stock.len(), path.display());
    let options = Options { config: None, socket: None, program: PathBuf::new() };
    server::place(&options, &settings).map_err(|error| format!("{place}: {error}"))?;
    let files = settings.tenants.iter().flat_map(|tenant| &tenant.charge.files);
    let (wrong, foreign) = LeaseDir::faults(files);
    if let Some(line) = wrong.first() {
        return Err(format!("{place}: {line}"));
    }
    for line in foreign {
        prezero_sys::tell!("prezerod: {place}: {line}");
    }
    let tenants = settings.tenants.len();
    prezero_sys::print!("{place}: good: {stock} sizes in stock, {tenants} tenants\n")
        .map_err(|error| format!("standard output: {error}"))
}

/// For every shell that looks for them there.
fn completions(folder: &Path) -> std::io::Result<()> {
    for (shell, below) in [
        (Shell::Bash, "bash-completion/completions"),
        (Shell::Zsh, "zsh/site-functions"),
        (Shell::Fish, "fish/vendor_completions.d"),
    ] {
        let folder = folder.join(below);
        std::fs::create_dir_all(&folder)?;
        let file = clap_complete::generate_to(shell, &mut Command::command(), "prezerod", folder)?;
        if shell == Shell::Bash {
            // By its command's name bash-completion finds it.
            std::fs::rename(&file, file.with_file_name("prezerod"))?;
        }
    }
    Ok(())
}

/// A mistake in the command line, as one line.
fn refuse(error: &clap::Error) -> ExitCode {
    let text = error.to_string();
    let words: Vec<_> = text.split("\n\n").next().unwrap_or_default().split_whitespace().collect();
    let line = words.join(" ");
    prezero_sys::tell!(
        "prezerod: {}; see `prezerod --help`",
        line.strip_prefix("error: ").unwrap_or(&line)
    );
    ExitCode::from(2)
}

fn end(result: Result<(), String>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            prezero_sys::tell!("prezerod: {error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_stands_in_the_man_page() {
        let page = include_str!("../man/prezerod.8").replace('\\', "");
        let command = Command::command();
        let options = command.get_arguments().filter_map(|argument| argument.get_long());
        let options: Vec<_> = options.collect();
        assert!(options.contains(&"config"));
        for option in options {
            assert!(page.contains(&format!("--{option}")), "{option}");
        }
    }
}

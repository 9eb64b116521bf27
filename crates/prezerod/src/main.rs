//! The daemon `prezerod`; see the library for what it does.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use prezerod::filler::{self, Binding, Pace};
use prezerod::server::{Options, Server};
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

/// What the daemon starts by itself.
#[derive(clap::Subcommand)]
enum Process {
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
    },
}

fn main() -> ExitCode {
    let command = match Command::try_parse() {
        Ok(command) => command,
        Err(error) if !error.use_stderr() => error.exit(),
        Err(error) => return refuse(&error),
    };
    if let Some(Process::Filler { node, urgent, bind, cgroup }) = command.process {
        let pace = if urgent { Pace::Urgent } else { Pace::Idle };
        let binding = if bind { Binding::Node } else { Binding::None };
        let ended = filler::run(pace, node, binding, cgroup.as_deref());
        return end(ended.map_err(|error| format!("filler: {error}")));
    }
    if let Some(path) = command.check {
        return end(Settings::read(&path).map_err(|error| error.to_string()).map(|settings| {
            let (stock, tenants) = (settings.stock.len(), settings.tenants.len());
            println!("{}: good: {stock} sizes in stock, {tenants} tenants", path.display());
        }));
    }
    let options = Options {
        config: command.config,
        socket: command.socket,
        // Stays the same program when the file is replaced by a newer one.
        program: "/proc/self/exe".into(),
    };
    end(Server::start(options).and_then(|server| server.run().map_err(|error| error.to_string())))
}

/// A mistake in the command line, as one line.
fn refuse(error: &clap::Error) -> ExitCode {
    let text = error.to_string();
    let words: Vec<_> = text.split("\n\n").next().unwrap_or_default().split_whitespace().collect();
    let line = words.join(" ");
    eprintln!("prezerod: {}; see `prezerod --help`", line.strip_prefix("error: ").unwrap_or(&line));
    ExitCode::from(2)
}

fn end(result: Result<(), String>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("prezerod: {error}");
            ExitCode::FAILURE
        }
    }
}

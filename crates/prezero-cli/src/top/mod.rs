//! `prezero top`: the processes under prezero, and what the broker has, live.
//!
//! [`watch`] collects, from the processes' panels and, in [`broker`], the broker's socket; [`view`],
//! [`process_view`] and [`broker_view`] draw what [`picker`] has sorted and selected: all of it in 80
//! columns and 24 lines, in fewer what has room; without a terminal there are `--once` and `--json`.

mod broker;
mod broker_view;
mod picker;
mod process_view;
mod view;
mod watch;

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};
use prezero_sys::escape;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use view::View;
use watch::Watch;

/// The command line of `prezero top`.
#[derive(clap::Args)]
#[command(
    after_help = "Keys: up, down or k, j select; < > or left, right choose the column that sorts; r reverses; \
    b shows the broker, or processes again; q leaves.\nExample: prezero top --once --json | jq '.processes[] | [.pid, .hit_share]'"
)]
pub struct Top {
    /// Seconds between two looks
    #[arg(long, short = 'd', value_name = "SECONDS", default_value = "1", value_parser = delay_of)]
    delay: f64,
    /// Look twice, print, and end
    #[arg(long)]
    once: bool,
    /// Print one JSON object a look instead of a picture
    #[arg(long)]
    json: bool,
    /// Socket of prezerod [the user's own, or /run/prezero/prezerod.sock]
    #[arg(long, value_name = "PATH", env = "PREZERO_SOCKET", hide_env_values = true)]
    socket: Option<PathBuf>,
}

fn delay_of(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.05..=3600.0).contains(seconds));
    seconds.ok_or_else(|| "give seconds, 0.05 to 3600".into())
}

impl Top {
    /// Shows until the user ends it.
    pub fn run(&self) -> Result<()> {
        let delay = Duration::from_secs_f64(self.delay);
        let door = prezerod::client::Door::find(self.socket.as_deref());
        let mut watch = Watch::new(door);
        if self.once || self.json {
            return self.print(&mut watch, delay);
        }
        ensure!(
            std::io::stdout().is_terminal(),
            "standard output is no terminal; give --once or --json"
        );
        let mut terminal = ratatui::init();
        let outcome = live(&mut terminal, &mut watch, delay);
        ratatui::restore();
        outcome
    }

    fn print(&self, watch: &mut Watch, delay: Duration) -> Result<()> {
        watch.look();
        loop {
            std::thread::sleep(delay);
            watch.look();
            let text = if self.json {
                escape::json(&format!("{}\n", watch.json()))
            } else {
                view::table(watch)
            };
            let mut out = std::io::stdout();
            // The reader may have closed the pipe.
            let told = out.write_all(text.as_bytes()).and_then(|()| out.flush());
            if self.once || told.is_err() {
                return Ok(());
            }
        }
    }
}

fn live(terminal: &mut ratatui::DefaultTerminal, watch: &mut Watch, delay: Duration) -> Result<()> {
    let mut view = View::default();
    let mut due = std::time::Instant::now();
    loop {
        if due <= std::time::Instant::now() {
            watch.look();
            due = std::time::Instant::now() + delay;
        }
        view.arrange(watch);
        terminal.draw(|frame| view.draw(frame, watch))?;
        if !event::poll(due.saturating_duration_since(std::time::Instant::now()))? {
            continue;
        }
        if let Event::Key(key) = event::read()?
            && key.kind == KeyEventKind::Press
        {
            match key.code {
                KeyCode::Char('q') | KeyCode::Esc => return Ok(()),
                KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => {
                    return Ok(());
                }
                code => view.press(code),
            }
        }
    }
}

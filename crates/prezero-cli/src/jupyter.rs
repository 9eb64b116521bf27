//! `prezero jupyter install`: a kernel for notebooks that runs under prezero.
//!
//! Jupyter starts a kernel by the command in its `kernel.json`. This one is `prezero run` before the command of
//! ipykernel, which it becomes: interrupts and signals reach the kernel as ever.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use prezero_command::program;

/// The command line of `prezero jupyter`.
#[derive(clap::Subcommand)]
#[command(after_help = "Example: prezero jupyter install")]
pub enum Jupyter {
    /// Write a kernel that runs Python under prezero.
    Install(Install),
}

/// The command line of `prezero jupyter install`.
#[derive(clap::Args)]
#[command(after_help = "Example: prezero jupyter install --python .venv/bin/python3\n\
    To remove it: jupyter kernelspec remove prezero")]
pub struct Install {
    /// The Python of the kernel; it has ipykernel
    #[arg(long, value_name = "PATH", default_value = "python3")]
    python: PathBuf,
    /// The kernel's name in Jupyter
    #[arg(long, value_name = "NAME", default_value = "prezero")]
    name: String,
    /// A Python environment that gets it [the user's own kernels]
    #[arg(long, value_name = "DIR")]
    prefix: Option<PathBuf>,
}

impl Jupyter {
    /// Writes the kernel.
    ///
    /// # Errors
    /// There is no such Python, it has no ipykernel, or the folder cannot be written.
    pub fn run(&self) -> Result<()> {
        match self {
            Jupyter::Install(install) => install.run(),
        }
    }
}

impl Install {
    fn run(&self) -> Result<()> {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        ensure!(
            !self.name.is_empty() && self.name.chars().all(plain),
            "--name {:?}: give letters, digits, '-', '_' and '.', as Jupyter wants it",
            self.name
        );
        let python = program::find(self.python.as_os_str(), std::env::var_os("PATH"));
        let python = python.map_err(|missing| anyhow::anyhow!("{missing}"))?;
        // Not resolved: a link into another folder is what makes an environment of Python's.
        let python = std::path::absolute(python)?;
        let version = version(&python)?;
        let prezero = std::env::current_exe().context("where this command lies")?;
        let kernel = kernel(&prezero, &python, &version);
        try_once(&kernel)?;
        let folder = self.kernels()?.join(&self.name);
        fs::create_dir_all(&folder).with_context(|| format!("{}", folder.display()))?;
        let file = folder.join("kernel.json");
        fs::write(&file, format!("{kernel:#}\n")).with_context(|| format!("{}", file.display()))?;
        prezero_sys::print!("{}: {version} (prezero)\n", file.display())?;
        Ok(())
    }

    /// Where Jupyter looks for kernels.
    fn kernels(&self) -> Result<PathBuf> {
        if let Some(prefix) = &self.prefix {
            return Ok(prefix.join("share/jupyter/kernels"));
        }
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        if let Some(data) = set("JUPYTER_DATA_DIR") {
            return Ok(PathBuf::from(data).join("kernels"));
        }
        let home = || Some(PathBuf::from(set("HOME")?).join(".local/share"));
        let data = set("XDG_DATA_HOME").map(PathBuf::from).or_else(home);
        Ok(data.context("no HOME in the environment: give --prefix DIR")?.join("jupyter/kernels"))
    }
}

/// `Python 3.11`, if it can run a kernel.
fn version(python: &Path) -> Result<String> {
    let program =
        "import sys, ipykernel_launcher as _; print('Python %d.%d' % sys.version_info[:2])";
    // Importing the launcher starts no kernel.
    let output = Command::new(python).args([OsStr::new("-c"), OsStr::new(program)]).output();
    let shown = python.display();
    let output = output.with_context(|| format!("{shown}"))?;
    ensure!(output.status.success(), "{shown} has no ipykernel: {shown} -m pip install ipykernel");
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_string())
}

/// Starts the kernel's command as far as its modules, under prezero.
fn try_once(kernel: &serde_json::Value) -> Result<()> {
    let words = kernel["argv"].as_array().into_iter().flatten().filter_map(|word| word.as_str());
    let words: Vec<&str> = words.take_while(|word| *word != "-m").collect();
    let program = "import ctypes, ipykernel_launcher as _; ctypes.CDLL(None).prezero_zalloc";
    let output = Command::new(words[0]).args(&words[1..]).args(["-c", program]).output();
    let output = output.with_context(|| words[0].to_string())?;
    let said = String::from_utf8_lossy(&output.stderr);
    // The first line is prezero's, the last is Python's.
    let why = said.lines().find(|line| line.starts_with("prezero: ")).or(said.lines().last());
    ensure!(
        output.status.success(),
        "such a kernel does not start, none is written: {}",
        why.unwrap_or("it said nothing")
    );
    Ok(())
}

/// The text of `kernel.json`.
fn kernel(prezero: &Path, python: &Path, version: &str) -> serde_json::Value {
    json!({
        "argv": [
            prezero, "run", "--stats", "off", "--",
            python, "-m", "ipykernel_launcher", "-f", "{connection_file}",
        ],
        "display_name": format!("{version} (prezero)"),
        "language": "python",
        "metadata": { "debugger": true },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(install: Install) -> String {
        format!("{:#}", install.run().unwrap_err())
    }

    #[test]
    fn a_kernel_is_the_program_that_prezero_becomes() {
        let kernel = kernel(Path::new("/p/prezero"), Path::new("/v/bin/python3"), "Python 3.13");
        assert_eq!(kernel["argv"][0], "/p/prezero");
        assert_eq!(kernel["argv"][5], "/v/bin/python3");
        assert_eq!(kernel["argv"][9], "{connection_file}");
        assert_eq!(kernel["display_name"], "Python 3.13 (prezero)");
    }

    #[test]
    fn what_cannot_be_a_kernel_comes_with_its_mend() {
        let install = |python: &str, name: &str| Install {
            python: python.into(),
            name: name.into(),
            prefix: Some("/nowhere".into()),
        };
        assert!(refused(install("python3", "a/b")).starts_with("--name \"a/b\": give letters"));
        assert!(
            refused(install("/bin/false", "p")).contains("/bin/false -m pip install ipykernel")
        );
        assert!(refused(install("/no/python3", "p")).contains("no such program"));
    }
}

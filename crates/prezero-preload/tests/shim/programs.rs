//! Real programs say the same with the shim as without.

use std::path::Path;

use crate::run::{bare, run, shimmed};

/// Runs a shell script both ways and compares what it prints.
fn same_both_ways(script: &str) {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!(
        "{}-{}",
        std::process::id(),
        script.len()
    ));
    std::fs::create_dir_all(&folder).expect("a folder to work in");
    let ways = [bare("bash"), shimmed("bash")].map(|mut bash| {
        run(bash.current_dir(&folder).args(["-euo", "pipefail", "-c", script]).env("HOME", &folder))
    });
    std::fs::remove_dir_all(&folder).expect("the folder is ours");
    assert!(!ways[0].is_empty(), "the script says something");
    assert_eq!(ways[0], ways[1]);
}

#[test]
fn python_with_large_objects_threads_and_children() {
    same_both_ways(
        r#"python3 - <<'END'
import array, hashlib, io, mmap, os, subprocess, sys, threading
h = hashlib.sha256()
def work(n):
    for i in range(1, 30):
        b = bytearray(i * 50000 + n)
        assert not any(b[::997]), "bytearray is zeroed"
        b[:] = bytes([n & 255]) * len(b)
        b.extend(b"x" * 100000)
        del b[1000:]
threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
for t in threads: t.start()
for t in threads: t.join()
text = io.StringIO()
for i in range(200000): text.write(f"{i},")
h.update(text.getvalue().encode())
numbers = array.array("q", range(300000)); numbers.extend(numbers); h.update(numbers.tobytes())
big = list(range(500000)); big.sort(key=lambda n: -n); h.update(str(big[:1000]).encode())
m = mmap.mmap(-1, 1 << 20); m[:] = b"m" * (1 << 20); h.update(m[:]); m.close()
for n in range(3):
    pid = os.fork()
    if pid == 0:
        c = bytearray(1 << 22); os._exit(7 if not any(c[::4096]) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
out = subprocess.run([sys.executable, "-c", "print(len(bytes(10**7)))"], capture_output=True, check=True).stdout
print(h.hexdigest(), out)
END"#,
    );
}

#[test]
fn sort_of_many_lines() {
    same_both_ways(
        "seq 1 400000 | awk '{ print ($1 * 7919) % 1000003, $1 }' > lines
         sort lines | md5sum; sort -n -k2 -r lines | md5sum; sort -u -S 1M lines | md5sum",
    );
}

#[test]
fn git_commits_packs_and_reads_back() {
    same_both_ways(
        "export GIT_AUTHOR_DATE='2001-02-03T04:05:06Z' GIT_COMMITTER_DATE='2001-02-03T04:05:06Z'
         export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
         rm -rf one two; git init -q -b main one; cd one
         for i in 1 2 3 4 5; do seq $i 60000 > big; seq 1 $i > small; git add .; git commit -q -m $i; done
         git gc -q 2>/dev/null; git fsck --full 2>/dev/null; git log --format=%H -p --stat | md5sum
         cd ..; git clone -q one two; git -C two log --format=%H; md5sum two/big",
    );
}

#[test]
fn gcc_compiles_and_the_program_runs() {
    same_both_ways(
        r#"{ echo '#include <stdio.h>'; for i in $(seq 1 800); do
               echo "int f$i(int x) { int s = $i; for (int i = 0; i < x; i++) s = s * 31 + i; return s; }"; done
             echo 'int main(void) { long t = 0;'; for i in $(seq 1 800); do echo "t += f$i($i);"; done
             echo 'printf("%ld\n", t); return 0; }'; } > p.c
           gcc -O2 -c p.c -o p.o; gcc p.o -o p; ./p; md5sum < p.o"#,
    );
}

#[test]
fn bash_with_large_strings_and_subshells() {
    same_both_ways(
        r#"s=x; for i in {1..18}; do s=$s$s; done; echo ${#s}
           a=(); for i in {1..20000}; do a+=("$i-$i"); done; echo "${a[*]}" | md5sum
           for i in 1 2 3; do (t=${s//x/yz}; echo ${#t}; echo "$t" | md5sum) & wait; done"#,
    );
}

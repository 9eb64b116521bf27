//! The GPUs of a server's ranks, and the NUMA nodes that they are plugged into: by sysfs, since no driver is asked.
//!
//! Rank I has the GPU at place I of `CUDA_VISIBLE_DEVICES` (or AMD's variables), a number in the order of PCI addresses.
//! Only the driver knows GPUs by their UUIDs, and unlike GPUs by their speed, which is its order unless
//! `CUDA_DEVICE_ORDER` says `PCI_BUS_ID`.

use std::fs;
use std::path::Path;

/// Makers of GPUs, as the kernel writes them.
const NVIDIA: &str = "0x10de";
const AMD: &str = "0x1002";
/// Classes of PCI devices: displays, and accelerators that drive none.
const CLASSES: [&str; 2] = ["0x03", "0x12"];

/// One of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Gpu {
    /// Of PCI, as the kernel writes it: `0000:c1:00.0`.
    pub address: String,
    /// `None`: the machine has one node, or does not say.
    pub node: Option<u16>,
}

/// That of each rank; `None`, and a reason, where it is not known.
pub fn of_ranks(
    sysfs: &Path,
    variable: &dyn Fn(&str) -> Option<String>,
    ranks: usize,
) -> (Vec<Option<Gpu>>, Option<String>) {
    let unknown = |why: String| (vec![None; ranks], Some(why));
    let (gpus, are_alike) = all(sysfs);
    if gpus.is_empty() {
        return unknown(format!("no GPU in {}", sysfs.join("bus/pci/devices").display()));
    }
    let names = ["CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"];
    let told = names.iter().find_map(|name| Some((*name, variable(name)?)));
    let by_address = variable("CUDA_DEVICE_ORDER").is_some_and(|order| order == "PCI_BUS_ID");
    if !are_alike && !by_address {
        let why = "the GPUs are not alike, and only their driver knows their order";
        return unknown(format!("{why}: set CUDA_DEVICE_ORDER=PCI_BUS_ID"));
    }
    let (visible, name) = match told {
        None => (gpus, "here"),
        Some((name, list)) => {
            let mut visible = vec![];
            for word in list.split(',').map(str::trim) {
                match word.parse::<usize>() {
                    Ok(number) if number < gpus.len() => visible.push(gpus[number].clone()),
                    // CUDA sees those before the first that is wrong.
                    Ok(_) => break,
                    Err(_) if word.starts_with("GPU-") || word.starts_with("MIG-") => {
                        let why = format!("{name} has {word}, and only the driver knows UUIDs");
                        return unknown(format!("{why}: give numbers, or --node"));
                    }
                    Err(_) => break,
                }
            }
            (visible, name)
        }
    };
    let count = visible.len();
    let of_ranks = visible.into_iter().map(Some).chain(std::iter::repeat(None)).take(ranks);
    let why = (count < ranks).then(|| match name {
        "here" => format!("{ranks} ranks, and {count} GPUs"),
        name => format!("{ranks} ranks, and {count} GPUs in {name}"),
    });
    (of_ranks.collect(), why)
}

/// All of one maker, by address, and whether they are of one model.
fn all(sysfs: &Path) -> (Vec<Gpu>, bool) {
    let devices = fs::read_dir(sysfs.join("bus/pci/devices")).into_iter().flatten().flatten();
    let mut found: Vec<(String, String, Gpu)> = devices
        .filter_map(|device| {
            let read = |name: &str| fs::read_to_string(device.path().join(name)).ok();
            let (maker, class) = (read("vendor")?.trim().to_owned(), read("class")?);
            if !CLASSES.iter().any(|known| class.starts_with(known)) {
                return None;
            }
            // -1: none.
            let node = read("numa_node").and_then(|node| node.trim().parse().ok());
            let gpu = Gpu { address: device.file_name().into_string().ok()?, node };
            Some((maker, read("device").unwrap_or_default(), gpu))
        })
        .collect();
    let maker = [NVIDIA, AMD].into_iter().find(|maker| found.iter().any(|each| each.0 == *maker));
    found.retain(|each| maker.is_some_and(|maker| each.0 == maker));
    found.sort_by(|one, other| one.2.address.cmp(&other.2.address));
    let are_alike = found.windows(2).all(|pair| pair[0].1 == pair[1].1);
    (found.into_iter().map(|each| each.2).collect(), are_alike)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    /// A made-up `/sys`, removed when dropped.
    struct Sysfs(PathBuf);

    impl Sysfs {
        fn empty(name: &str) -> Sysfs {
            let name = format!("prezero-gpus-{name}-{}", std::process::id());
            let dir = std::env::temp_dir().join(name);
            fs::create_dir_all(&dir).unwrap();
            Sysfs(dir)
        }

        fn path(&self) -> &Path {
            &self.0
        }
    }

    impl Drop for Sysfs {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// Two nodes with two GPUs each, a network card and a display of the board.
    fn machine(name: &str) -> Sysfs {
        let dir = Sysfs::empty(name);
        for (address, maker, class, model, node) in [
            ("0000:c1:00.0", NVIDIA, "0x030200", "0x2335", "1"),
            ("0000:01:00.0", NVIDIA, "0x030200", "0x2335", "0"),
            ("0000:41:00.0", NVIDIA, "0x030200", "0x2335", "0"),
            ("0000:81:00.0", NVIDIA, "0x030200", "0x2335", "1"),
            ("0000:02:00.0", "0x15b3", "0x020000", "0x1021", "0"),
            ("0000:03:00.0", "0x1a03", "0x030000", "0x2000", "-1"),
            ("0000:04:00.0", NVIDIA, "0x040300", "0x10f7", "0"),
        ] {
            let device = dir.path().join("bus/pci/devices").join(address);
            fs::create_dir_all(&device).unwrap();
            for (name, text) in
                [("vendor", maker), ("class", class), ("device", model), ("numa_node", node)]
            {
                fs::write(device.join(name), format!("{text}\n")).unwrap();
            }
        }
        dir
    }

    fn asked(dir: &Path, variables: &[(&str, &str)], ranks: usize) -> (Vec<Option<u16>>, String) {
        let variable =
            |name: &str| variables.iter().find(|each| each.0 == name).map(|each| each.1.to_owned());
        let (gpus, why) = of_ranks(dir, &variable, ranks);
        let nodes = gpus.into_iter().map(|gpu| gpu.and_then(|gpu| gpu.node)).collect();
        (nodes, why.unwrap_or_default())
    }

    #[test]
    fn each_rank_has_the_node_of_its_gpu() {
        let dir = machine("all");
        let all = [Some(0), Some(0), Some(1), Some(1)].to_vec();
        assert_eq!(asked(dir.path(), &[], 4), (all, String::new()));
        for (list, nodes) in [("2,0", [Some(1), Some(0)]), (" 3 , 2 ", [Some(1), Some(1)])] {
            let told = [("CUDA_VISIBLE_DEVICES", list)];
            assert_eq!(asked(dir.path(), &told, 2), (nodes.to_vec(), String::new()), "{list}");
        }
        let (gpus, _) = of_ranks(dir.path(), &|_| None, 3);
        assert_eq!(gpus[2].as_ref().unwrap().address, "0000:81:00.0");
    }

    #[test]
    fn what_only_the_driver_knows_is_of_any_node_and_named() {
        let dir = machine("unknown");
        let (none, why) = asked(dir.path(), &[("CUDA_VISIBLE_DEVICES", "0,GPU-8f2c")], 2);
        assert!(none == [None, None] && why.contains("GPU-8f2c") && why.contains("UUID"), "{why}");
        let (nodes, why) = asked(dir.path(), &[("CUDA_VISIBLE_DEVICES", "2,9,1")], 2);
        assert!(nodes == [Some(1), None] && why.contains("2 ranks, and 1 GPUs"), "{why}");
        let (nodes, why) = asked(dir.path(), &[], 5);
        assert!(nodes[4].is_none() && nodes[3] == Some(1) && why == "5 ranks, and 4 GPUs", "{why}");
        let model = dir.path().join("bus/pci/devices/0000:c1:00.0/device");
        fs::write(model, "0x20b0\n").unwrap();
        let (none, why) = asked(dir.path(), &[], 2);
        assert!(none == [None, None] && why.contains("PCI_BUS_ID"), "{why}");
        let told = [("CUDA_DEVICE_ORDER", "PCI_BUS_ID")];
        assert_eq!(asked(dir.path(), &told, 1), (vec![Some(0)], String::new()));
    }

    #[test]
    fn a_machine_without_gpus_has_leases_of_any_node() {
        let dir = Sysfs::empty("none");
        let (none, why) = asked(dir.path(), &[], 2);
        assert!(none == [None, None] && why.starts_with("no GPU in "), "{why}");
    }
}

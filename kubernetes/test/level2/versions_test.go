package level2

import (
	"testing"
)

// Earlier versions, as the processes of this one emulate them.
func TestEarlierVersionsCountTooWithTheirGates(t *testing.T) {
	for version, gates := range map[string]string{"1.34": "DRAConsumableCapacity=true", "1.35": "DRAConsumableCapacity=true", "1.36": ""} {
		t.Run(version, func(t *testing.T) {
			flags := []string{"--emulated-version=" + version}
			if gates != "" {
				flags = append(flags, "--feature-gates="+gates)
			}
			schedules(newCluster(t, flags...))
		})
	}
}

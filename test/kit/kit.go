// Package kit is shared by tests of the whole program: the real binary ([BuildProxy], [StartProxy]), real Redis servers alone,
// as a cluster and with Sentinels ([StartRedis], [StartCluster], [StartSentinel]), free ports ([FreePort]), polling
// ([Eventually]), and checks for leaked goroutines ([RunWithoutLeaks]) and for suites that cannot fail ([WantFailures]). Everything
// that it starts is stopped when the test ends.
package kit

// Package kit is what tests of the whole program share: the real binary ([BuildProxy], [StartProxy]), real Redis servers alone,
// as a cluster and with Sentinels ([StartRedis], [StartCluster], [StartSentinel]), free ports ([FreePort]), and a check for
// leaked goroutines ([RunWithoutLeaks]). It stops whatever it has started when the test ends.
package kit

package main

import "strings"

// didYouMean returns a hint with the known word that is closest to an unknown one, "" if none is close.
func didYouMean(word string, known []string) string {
	best := closest(word, known)
	if best == "" {
		return ""
	}
	return ", did you mean " + best + "?"
}

// closest returns the known word that is closest to an unknown one, "" if none is close.
func closest(word string, known []string) string {
	best, least := "", max(len(word)/3, 1)+1
	for _, k := range known {
		if d := editDistance(strings.ToLower(word), strings.ToLower(k)); d < least {
			best, least = k, d
		}
	}
	return best
}

// editDistance counts the bytes to insert, delete, replace or swap with their neighbour to turn a into b.
func editDistance(a, b string) int {
	var before []int
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		next := make([]int, len(b)+1)
		next[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			next[j+1] = min(row[j]+cost, row[j+1]+1, next[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				next[j+1] = min(next[j+1], before[j-1]+1)
			}
		}
		before, row = row, next
	}
	return row[len(b)]
}

"""A broker that is a pod of a StatefulSet: who it is, where the others are, how many they are."""

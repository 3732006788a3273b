"""What can be known of a target, a map and a policy in it; nothing here touches a disk."""

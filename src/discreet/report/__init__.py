"""What people and machines read of releases: reports, and the gate."""

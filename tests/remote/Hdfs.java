import java.io.File;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.MiniDFSCluster;

/** HDFS with one datanode on loopback, in the folder given: prints its port, ends with its standard input. */
public class Hdfs {
    public static void main(String[] args) throws Exception {
        MiniDFSCluster cluster =
                new MiniDFSCluster.Builder(new Configuration(), new File(args[0])).numDataNodes(1).build();
        cluster.waitActive();
        System.out.println("PORT " + cluster.getNameNodePort());
        while (System.in.read() >= 0) {}
        System.exit(0);
    }
}
